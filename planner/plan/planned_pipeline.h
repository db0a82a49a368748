// Plans all places of a pipeline in one process; no call is collective. In a long pipeline it runs
// only some places and interpolates between them, where the plans lie on a line exactly.
#pragma once

#include <functional>
#include <vector>

#include "planner/plan/planned_rank.h"

namespace trident {

// Returns the plan of the first rank at each place of the pipeline, [p].
std::vector<PlannedRank> plan_pipeline(const Config&, const Architecture&,
                                       const Schedule& schedule);

// Returns the same without traffic, [p]. If `enough` is true for a place, returns that place's plan
// alone. The places that hold most micro-batches are tried first.
std::vector<PlannedRank> plan_memory(const Config&, const Architecture&, const Schedule& schedule,
                                     const std::function<bool(const PlannedRank&)>& enough);

}  // namespace trident
