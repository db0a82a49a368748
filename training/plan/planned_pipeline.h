// All places of a pipeline, planned; long ones by the places where their plans bend.
#pragma once

#include <functional>
#include <vector>

#include "training/plan/planned_rank.h"

namespace trident {

// The first rank at each place of the pipeline, [p].
std::vector<PlannedRank> plan_pipeline(const Config&, const Architecture&,
                                       const Schedule& schedule);

// Of those that differ in nothing but how many micro-batches they hold, the one that holds the
// most; so the largest rank is among them. The first place, which collects reports, comes first.
// Without their traffic. Planning stops after a rank for which `enough` is true.
std::vector<PlannedRank> plan_fullest(const Config&, const Architecture&, const Schedule& schedule,
                                      const std::function<bool(const PlannedRank&)>& enough = {});

}  // namespace trident
