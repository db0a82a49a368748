// The drawing of a simulated step.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/setup/from_config.h"
#include "planner/simulation/step_simulation.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

TEST(SimulationPrint, ATimelineHasALaneForOverlappedOperations) {
  const Config config = config_of({.layers = 8,
                                   .hidden = 1024,
                                   .heads = 16,
                                   .tensor = 2,
                                   .pipeline = 2,
                                   .chunks = 1,
                                   .devices = 16,
                                   .batch = 16,
                                   .micro_batch = 1});
  const Machine machine = dgx_a100();
  const SimulatedStep step =
      simulate_step(config, *architecture_of(config), machine,
                    Assumptions::of(config.zero_optimization, config.parallel));
  const auto trace = nlohmann::json::parse(drawn(step, machine, "chrome"));
  std::map<std::string, double> seconds;  // by category
  double last = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    seconds[event["cat"]] += event["dur"].get<double>() * 1e-6;
    last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_NEAR(last * 1e-6, step.seconds, 1e-6);
  double data = 0;
  for (const OverlappedSeconds& one : step.overlapped)
    data += one.group == "data" ? one.seconds : 0;
  EXPECT_GT(data, 0);
  EXPECT_NEAR(seconds["gradient_reduction"], data, 1e-6);
  EXPECT_GT(seconds["transfer"], 0);
  EXPECT_GT(seconds["optimizer"], 0);
  EXPECT_THAT(drawn(step, machine, "svg"), HasSubstr("all_reduce of data ranks"));
}

}  // namespace
}  // namespace trident::testing
