// What no schedule can be shorter than.
#pragma once

#include "scheduler/search_problem.h"

namespace trident {

// Lower bounds of the makespan and of the longest span of a rank, of all synchronous schedules with
// the problem's placement, times and room, in whatever order. The largest, over all ranks, of
// - its work, and before its first input gradient and after its last forward the time for which it
//   has not room enough to be busy;
// - for each rank further down the pipeline, the way to it, what it has to do before its last input
//   gradient, and the way back.
// The makespan's has besides the way to a rank's first forward.
struct LowerBounds {
  double makespan = 0.0, span = 0.0;
};
LowerBounds lower_bounds(const SearchProblem&);

}  // namespace trident
