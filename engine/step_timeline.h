// Draws one training step as a timeline, with a row for each rank: its computes and its groups'
// operations. Local functions.
#pragma once

#include <optional>
#include <vector>

#include "engine/stepper.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/operation_log.h"
#include "parallel/topology.h"
#include "scheduler/timeline.h"

namespace trident {

// The category for drawing an operation of a group (TrafficGroup::group).
EventCategory category_of(const std::optional<Group>&, Operation, Purpose = Purpose::none);

// Clocks, traces and logged operations are by world rank. The log numbers groups as
// Topology::traffic_groups() lists them. Sends are drawn where the trace has them, with the bytes
// of the log; every logged byte is in one event.
Timeline step_timeline(const Topology&, const std::vector<StepClock>& clocks,
                       const std::vector<ExecutionTrace>& traces,
                       const std::vector<std::vector<LoggedOperation>>& operations);

}  // namespace trident
