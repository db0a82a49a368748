// All places of a pipeline, planned; long ones by the places where their plans bend.
#pragma once

#include <vector>

#include "training/plan/planned_rank.h"

namespace trident {

// The first rank at each place of the pipeline, [p].
std::vector<PlannedRank> plan_pipeline(const Config&, const Architecture&,
                                       const Schedule& schedule);

}  // namespace trident
