// What the ranks of a run share of its schedule: made once, and shared by those of a process.
#pragma once

#include <cstdint>

#include "scheduler/action.h"
#include "scheduler/iterations.h"
#include "scheduler/opening.h"

namespace trident {

struct RunLists {
  // `schedule`: one iteration's, valid; of a run of `iterations` >= 1.
  RunLists(const Schedule& schedule, std::int64_t iterations);

  Schedule schedule;
  IterationLists iterations;
  Opening opening;  // empty unless iterations overlap (overlaps_next_iteration())
};

}  // namespace trident
