// One training step as a timeline: a row for each rank, its computes and what its groups carried
// out beside them.
#pragma once

#include <optional>
#include <vector>

#include "engine/stepper.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/operation_log.h"
#include "parallel/topology.h"
#include "scheduler/timeline.h"

namespace trident {

// What an operation of such a group (TrafficGroup::group) is drawn as.
EventCategory category_of(const std::optional<Group>&, Operation);

// Clocks, traces and logged operations by world rank; the log's groups are numbered as
// Topology::traffic_groups() lists them. Sends stand where the trace has them, with
// the bytes that the log knows; every logged byte is in one event.
Timeline step_timeline(const Topology&, const std::vector<StepClock>& clocks,
                       const std::vector<ExecutionTrace>& traces,
                       const std::vector<std::vector<LoggedOperation>>& operations);

}  // namespace trident
