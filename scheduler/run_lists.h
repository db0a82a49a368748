// The lists of actions of a whole run: training, evaluation and warm-up. They are made once for
// each number of micro-batches, and all ranks of a process share them.
#pragma once

#include <cstdint>

#include "scheduler/action.h"
#include "scheduler/iterations.h"
#include "scheduler/warm_up.h"

namespace trident {

// The forward actions of `schedule` only. Windows of `window` micro-batches follow each other; each
// keeps the schedule's order.
Schedule forward_only(const Schedule& schedule, int window);

// Describes an asynchronous run that resumes with micro-batches in flight: the iterations since its
// pipeline was empty, and the updates that the weights have had.
struct Begun {
  std::int64_t iterations = 0, updates = 0;
};

struct RunLists {
  // `schedule` is the valid schedule of one iteration; the run has `iterations` >= 1 (more).
  RunLists(const Schedule& schedule, std::int64_t iterations, Begun begun = {});

  Schedule schedule;
  Begun begun;
  IterationLists iterations;
  int window;        // micro-batches of an evaluation after which a rank waits for the next ones
  Schedule forward;  // the schedule of an evaluation, window by window
  WarmUp warm_up;    // empty unless iterations overlap (overlaps_next_iteration())
};

}  // namespace trident
