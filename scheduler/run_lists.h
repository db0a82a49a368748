// What the ranks of a run share of its schedule: made once, and shared by those of a process.
#pragma once

#include <cstdint>

#include "scheduler/action.h"
#include "scheduler/iterations.h"
#include "scheduler/warm_up.h"

namespace trident {

// The forward actions of `schedule` alone, in its order within every `window` micro-batches, which
// follow each other.
Schedule forward_only(const Schedule& schedule, int window);

// An asynchronous run that goes on with what is in flight: the iterations since its pipeline was
// empty, and the updates that the weights have had.
struct Begun {
  std::int64_t iterations = 0, updates = 0;
};

struct RunLists {
  // `schedule`: one iteration's, valid; of a run of `iterations` >= 1 (more).
  RunLists(const Schedule& schedule, std::int64_t iterations, Begun begun = {});

  Schedule schedule;
  Begun begun;
  IterationLists iterations;
  int window;        // micro-batches of an evaluation between which a rank waits for the next ones
  Schedule forward;  // of an evaluation, window by window
  WarmUp warm_up;    // empty unless iterations overlap (overlaps_next_iteration())
};

}  // namespace trident
