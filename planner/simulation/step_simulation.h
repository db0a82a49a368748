// A training step on a machine that isn't at hand: its traced operations (planner/plan), priced
// (step_costs.h), in the order and with the waiting that the schedule gives them. A prediction.
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

// Where a pipeline rank's step goes, seconds.
struct RankSeconds {
  Seconds busy;         // what it computes, and the collectives that it waits for
  double exposed = 0;   // collectives beside compute that end after it
  double waiting = 0;   // for other ranks of the pipeline, and messages
  double messages = 0;  // its own, where compute waits for them
};

// What runs beside a place's actions and after them: collectives that aren't waited for, messages,
// and without a group the update.
struct OverlappedSeconds {
  int place = 0;
  std::string group = {};
  Operation operation = Operation::message;
  double start = 0, seconds = 0;
};

struct SimulatedStep {
  double seconds = 0;
  std::int64_t world_size = 0;
  double model_flops = 0;       // of the step, without what is computed again
  double hardware_flops = 0;    // with it
  double peak_flops = 0;        // of a device, in the type of its products
  double bubble_ratio = 0;      // of an asynchronous schedule in its steady state
  std::int64_t peak_bytes = 0;  // of the largest rank, by the plan
  std::map<std::string, double>
      communication;                 // seconds that the longest rank's groups are at work
  double exposed_communication = 0;  // of them, those that it waits for
  std::set<std::string> across;      // those whose links are between nodes
  std::vector<RankSeconds> ranks;    // by place in the pipeline
  Schedule schedule;
  Simulation simulation;
  std::vector<OverlappedSeconds> beside;

  std::int64_t tokens = 0;  // of the step

  // Of simulate_crowded(): how many devices there are, and what the ranks compute in all over them,
  // below which no step that shares them can be. 0: each rank has one.
  std::int64_t shared_devices = 0;
  double shared_seconds = 0;

  double tflops_per_device() const;
  double mfu() const;
  double hfu() const;
};

// RequestError where the machine can't run the config: too few nodes, a type without a rate. What
// it holds too little memory for is said by peak_bytes.
SimulatedStep simulate_step(const Config&, const Architecture&, const Machine&, const Habits&,
                            const WhatIf& = {});

// The same without peak_bytes, which is 0.
SimulatedStep simulate_time(const Config&, const Architecture&, const Machine&, const Habits&,
                            const WhatIf& = {});
// Whether the ranks of a config outnumber the machine's devices.
bool is_crowded(const Config&, const Machine&);
// Of such: a step with a device for every rank and messages that are there at once, as a run that
// shares its processors tells by StepFigures::replayed_ms.
SimulatedStep simulate_crowded(const Config&, const Architecture&, const Machine&, const Habits&,
                               const WhatIf& = {});

// "text", "json", or the timeline as "svg" or "chrome".
std::string drawn(const SimulatedStep&, const Machine&, const std::string& format,
                  const RunPlan& = {});

}  // namespace trident
