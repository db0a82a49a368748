// Lower bounds of the length of a schedule.
#pragma once

#include "scheduler/search_problem.h"

namespace trident {

// Lower bounds of the makespan and of the longest span of a rank. They hold for every synchronous
// schedule with the problem's placement, times and memory, in any order. Each is the maximum, over
// all ranks, of
// - the rank's work, plus the time before its first input gradient and after its last forward for
//   which its memory allows too few actions to keep it busy;
// - for each rank further down the pipeline, the way to it, its work before its last input
//   gradient, and the way back.
//
// The bound of the makespan also adds the way to a rank's first forward.
struct LowerBounds {
  double makespan = 0.0, span = 0.0;
};
LowerBounds lower_bounds(const SearchProblem&);

}  // namespace trident
