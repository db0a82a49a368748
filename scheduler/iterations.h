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

  // What a rank has done of later micro-batches when an iteration ends: forwards, and what they
  // send and receive.
  struct InFlight {
    std::vector<LoweredAction> actions;  // micro-batches counted from the next iteration's first
    // For each forward of these, in their order: backwards that the rank has run since.
    std::vector<std::int64_t> backwards_since;
    bool operator==(const InFlight&) const = default;
  };

  // `schedule`: one iteration's, valid; of a run of `iterations` >= 1. A run that goes on with what
  // is in flight after `begun` iterations of it has filled its pipeline then.
  IterationLists(const Schedule& schedule, std::int64_t iterations, std::int64_t begun = 0);
  // Of a synchronous schedule one, which all others are like.
  std::int64_t count() const { return iterations_; }
  // Iteration k, from 0, below count().
  const Iteration& of(std::int64_t k) const;
  // What rank has in flight where the run goes on; nothing where the pipeline is empty.
  const InFlight& in_flight(int rank) const { return in_flight_[static_cast<std::size_t>(rank)]; }
  const std::vector<InFlight>& in_flight() const { return in_flight_; }  // of all ranks

 private:
  const Iteration& counted(std::int64_t k) const;  // from the one that has filled the pipeline
  void find_in_flight(const Schedule&);

  // All that are counted, and those before the first.
  std::int64_t iterations_, before_ = 0;
  std::int64_t tail_ = 0;            // iterations at the end in which forwards run out
  std::vector<InFlight> in_flight_;  // [p]
  std::vector<Iteration> distinct_;  // the first, two alike, and the tail; all of a shorter run
};

}  // namespace trident
