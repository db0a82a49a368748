// All places of a pipeline, planned; long ones by the places where their plans bend.
#pragma once

#include <functional>
#include <vector>

#include "planner/plan/planned_rank.h"

namespace trident {

// The first rank at each place of the pipeline, [p].
std::vector<PlannedRank> plan_pipeline(const Config&, const Architecture&,
                                       const Schedule& schedule);

// Returns the same without traffic, [p]; only one place, if `enough` is true for it. The places
// that hold most micro-batches are tried first.
std::vector<PlannedRank> plan_memory(const Config&, const Architecture&, const Schedule& schedule,
                                     const std::function<bool(const PlannedRank&)>& enough);

}  // namespace trident
