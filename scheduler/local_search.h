// Makes a schedule shorter by moving single actions.
#pragma once

#include "scheduler/search_problem.h"

namespace trident {

// `begun` or what is found near it that is shorter by `objective` (makespan or span), within the
// problem's room, until `bound` is reached or the effort spent. Actions of a stage and kind keep
// their order. Late acceptance hill climbing (Burke and Bykov 2017): a move is kept where it is no
// worse than what was held some moves ago. Deterministic but for the effort's clock. `begun` has
// input and weight gradients apart and no fused pair; others are returned as they are.
Schedule local_search(const SearchProblem&, Schedule begun, Objective objective, double bound,
                      Effort&);

}  // namespace trident
