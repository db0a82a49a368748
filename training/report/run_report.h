// report.html: a run in one file that needs no network.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "scheduler/timeline.h"
#include "training/plan/plan.h"
#include "training/report/iteration_metrics.h"

namespace trident {

// Curves over the iterations, the bubble of each rank, memory beside the plan, and the timelines
// under each other (none where no iteration was traced). Each picture is a <figure> with an id.
std::string run_report(const Config&, const Plan&, const std::vector<IterationMetrics>&,
                       const std::vector<Timeline>&);

}  // namespace trident
