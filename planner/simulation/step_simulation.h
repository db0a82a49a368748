// Predicts a training step on a machine that need not be available. It traces the step's operations
// (planner/plan), prices them (step_costs.h), and replays them with the order and the dependencies
// of the schedule. Needs no other rank and no device; calls are independent of each other, so
// several threads may make them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "planner/machine/machine.h"
#include "planner/simulation/step_costs.h"
#include "planner/simulation/what_if.h"
#include "scheduler/simulate.h"
#include "settings/config.h"

namespace trident {

// The seconds of a pipeline rank's step.
struct RankSeconds {
  Seconds busy;         // compute, and the collectives that it waits for
  double exposed = 0;   // collectives concurrent with compute that end after it
  double waiting = 0;   // waiting for other ranks of the pipeline, and for messages
  double messages = 0;  // its own messages, if compute waits for them
};

// An operation that runs concurrently with a place's actions, or after them: a collective that
// isn't waited for, a message or, with an empty group, the update.
struct OverlappedSeconds {
  int place = 0;
  std::string group = {};
  Operation operation = Operation::message;
  double start = 0, seconds = 0;
};

struct SimulatedStep {
  double seconds = 0;
  std::int64_t world_size = 0;
  double model_flops = 0;                       // of the step, without recomputation
  double hardware_flops = 0;                    // with recomputation
  double peak_flops = 0;                        // of a device, in the type of the products
  double bubble_ratio = 0;                      // of an asynchronous schedule: in its steady state
  std::int64_t peak_bytes = 0;                  // of the largest rank, by the plan
  std::map<std::string, double> communication;  // seconds of the slowest rank's groups
  double exposed_communication = 0;             // the part of it that the rank waits for
  std::set<std::string> across;                 // the groups that cross nodes
  std::vector<RankSeconds> ranks;               // by place in the pipeline
  Schedule schedule;
  Simulation simulation;
  std::vector<OverlappedSeconds> overlapped;

  std::int64_t tokens = 0;  // in the step

  // Set by simulate_crowded(): the number of devices, and a lower bound of the step's time on them,
  // from the total compute of all ranks. 0: each rank has a device.
  std::int64_t shared_devices = 0;
  double shared_seconds = 0;

  double tflops_per_device() const;
  double mfu() const;
  double hfu() const;
};

// Throws RequestError where the machine can't run the config: too few nodes, a type without a rate.
// Too little memory is no error: compare peak_bytes.
SimulatedStep simulate_step(const Config&, const Architecture&, const Machine&, const Assumptions&,
                            const WhatIf& = {});

// Returns the same without peak_bytes, which is 0.
SimulatedStep simulate_time(const Config&, const Architecture&, const Machine&, const Assumptions&,
                            const WhatIf& = {});
// Whether the config has more ranks than the machine has devices.
bool is_crowded(int ranks, const Machine&);
// For a crowded machine: simulates a step with a device for every rank and messages that arrive at
// once. A run that shares its processors reports this time as StepFigures::replayed_ms.
SimulatedStep simulate_crowded(const Config&, const Architecture&, const Machine&,
                               const Assumptions&, const WhatIf& = {});

// Returns the step as "text" or "json", or its timeline as "svg" or "chrome".
std::string drawn(const SimulatedStep&, const Machine&, const std::string& format,
                  const RunPlan& = {});

}  // namespace trident
