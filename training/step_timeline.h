// One training step as a timeline: a row for each rank, its computes and what its groups carried
// out beside them.
#pragma once

#include <array>
#include <vector>

#include "parallel/operation_log.h"
#include "parallel/topology.h"
#include "scheduler/timeline.h"
#include "training/rank_model.h"

namespace trident {

// The groups whose traffic counts, as metrics.jsonl names them, and their numbers in a log. What is
// sent for the check of a step belongs to the world.
inline constexpr std::array<const char*, 5> group_names{"world", "tensor", "pipeline", "data",
                                                        "embedding"};
std::array<const ProcessGroup*, 5> logged_groups(const Topology&);

// Clocks, traces and logged operations by world rank. Sends stand where the trace has them, with
// the bytes that the log knows; every logged byte is in one event.
Timeline step_timeline(const Topology&, const Schedule&, const std::vector<StepClock>& clocks,
                       const std::vector<ExecutionTrace>& traces,
                       const std::vector<std::vector<LoggedOperation>>& operations);

}  // namespace trident
