// The lowered lists of each rank for each iteration of a run. Immutable after construction, so the
// rank threads of a process may share it.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/action.h"

namespace trident {

// A synchronous schedule runs the same lists in every iteration. An asynchronous schedule is never
// flushed: its run is one long list of all micro-batches. On each rank an iteration is the part of
// this list that ends with the backward of the iteration's last micro-batch. So at the end of an
// iteration every stage has had the same updates, while ranks have run up to p-1 forwards of later
// micro-batches.
class IterationLists {
 public:
  struct Iteration {
    // Micro-batches count from the iteration's first; numbers from m on belong to later iterations.
    // The list does not repeat actions that an earlier iteration ran.
    Schedule schedule;
    std::vector<std::vector<LoweredAction>> lists;  // [p]
  };

  // The actions of later micro-batches that a rank has run when an iteration ends: forwards, and
  // their sends and receives.
  struct InFlight {
    std::vector<LoweredAction> actions;  // micro-batches count from the next iteration's first
    // For each forward in `actions`, in order: the backwards that the rank has run since.
    std::vector<std::int64_t> backwards_since;
    bool operator==(const InFlight&) const = default;
  };

  // `schedule` is the valid schedule of one iteration; the run has `iterations` >= 1. For a run
  // that resumes with micro-batches in flight, `begun` is the number of iterations since its
  // pipeline was empty.
  IterationLists(const Schedule& schedule, std::int64_t iterations, std::int64_t begun = 0);
  // The number of iterations. It is 1 for a synchronous schedule: its iterations are all alike.
  std::int64_t count() const { return iterations_; }
  // Iteration k, 0 <= k < count().
  const Iteration& of(std::int64_t k) const;
  // The actions in flight on `rank` where the run resumes; empty if the pipeline is empty.
  const InFlight& in_flight(int rank) const { return in_flight_[static_cast<std::size_t>(rank)]; }
  const std::vector<InFlight>& in_flight() const { return in_flight_; }  // of all ranks

 private:
  const Iteration& counted(std::int64_t k) const;  // k from the iteration that filled the pipeline
  void find_in_flight(const Schedule&);

  // The iterations of this run, and the iterations counted before its first.
  std::int64_t iterations_, before_ = 0;
  std::int64_t tail_ = 0;            // iterations at the end in which forwards run out
  std::vector<InFlight> in_flight_;  // [p]
  std::vector<Iteration> distinct_;  // the first, two of the equal ones, and the tail; all of a
                                     // short run
};

}  // namespace trident
