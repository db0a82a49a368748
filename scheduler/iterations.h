// What each rank runs in each iteration of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// A synchronous schedule runs the same lists in every iteration. An asynchronous one is never
// flushed: its run is one long list of all micro-batches, of which an iteration is, on each rank,
// the part that ends with the backward of its last micro-batch. So at the end of an iteration every
// stage has had the same updates, while ranks have run up to p-1 forwards of later micro-batches.
class IterationLists {
 public:
  struct Iteration {
    // Micro-batches counted from the iteration's first; those from m on belong to later ones. What
    // an earlier iteration did is not in the list.
    Schedule schedule;
    std::vector<std::vector<LoweredAction>> lists;  // [p]
  };

  // `schedule`: one iteration's, valid; of a run of `iterations` >= 1.
  IterationLists(const Schedule& schedule, std::int64_t iterations);
  std::int64_t count() const { return iterations_; }
  // Iteration k, from 0, below count().
  const Iteration& of(std::int64_t k) const;

 private:
  std::int64_t iterations_, tail_ = 0;  // tail: iterations at the end in which forwards run out
  std::vector<Iteration> distinct_;     // the first, two alike, and the tail; all of a shorter run
};

}  // namespace trident
