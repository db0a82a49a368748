// Local search: shortens a schedule by moving single actions.
#pragma once

#include "scheduler/search_problem.h"

namespace trident {

// Returns `begun` or a schedule near it that is shorter by `objective` (makespan or span). It keeps
// to the problem's memory and stops when it reaches `bound` or has spent the effort. Actions of one
// stage and kind keep their order. The method is late acceptance hill climbing (Burke and Bykov
// 2017): it keeps a move if the result is no worse than the schedule held a number of moves ago.
// The result is deterministic unless the effort has a time limit. `begun` needs split backwards and
// no fused pair; any other schedule is returned unchanged.
Schedule local_search(const SearchProblem&, Schedule begun, Objective objective, double bound,
                      Effort&);

}  // namespace trident
