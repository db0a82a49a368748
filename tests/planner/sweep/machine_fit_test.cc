#include "planner/sweep/machine_fit.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "engine/setup/registry.h"
#include "planner/simulation/step_simulation.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Config> configs() {
  std::vector<Config> list;
  for (const PublishedRun& run :
       {PublishedRun{8, 2304, 24, 1, 1, 1, 16, 128, 8},
        PublishedRun{8, 2304, 24, 1, 1, 1, 64, 64, 1}, PublishedRun{8, 1024, 16, 8, 1, 1, 8, 64, 4},
        PublishedRun{8, 1024, 16, 2, 4, 1, 16, 64, 1},
        PublishedRun{8, 256, 8, 8, 1, 1, 16, 32, 1}}) {
    list.push_back(config_of(run));
  }
  return list;
}

// The time of each config on `made`, times `factor`.
std::vector<FitPoint> points_on(const Machine& made, const std::vector<Config>& list,
                                double factor = 1) {
  std::vector<FitPoint> points;
  for (const Config& config : list) {
    points.push_back({"", &config, false, factor * predicted_seconds(config, made, false)});
  }
  return points;
}

TEST(MachineFit, FindsTheConstantsThatMadeTheTimes) {
  const std::vector<Config> list = configs();
  Machine made = dgx_a100();
  made.efficiency = {.products = 0.61, .memory = 0.55, .links = 0.42};
  const std::vector<FitPoint> points = points_on(made, list);
  const MachineFit fit = fit_machine(dgx_a100(), points);
  EXPECT_NEAR(fit.machine.efficiency.products, 0.61, 0.01);
  EXPECT_NEAR(fit.machine.efficiency.memory, 0.55, 0.07);
  EXPECT_NEAR(fit.machine.efficiency.links, 0.42, 0.05);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(fit.after[i], points[i].seconds, 0.015 * points[i].seconds);
    EXPECT_EQ(fit.before[i], predicted_seconds(list[i], dgx_a100(), false));
  }
  // A second fit changes nothing.
  const MachineFit again = fit_machine(fit.machine, points);
  EXPECT_NEAR(again.machine.efficiency.products, fit.machine.efficiency.products, 5e-3);
}

// The runs are far faster than the machine's file predicts: no valid file has the constants that
// they need.
TEST(MachineFit, StaysWithinTheLimitsOfAFile) {
  const std::vector<Config> list = configs();
  const std::vector<FitPoint> points = points_on(dgx_a100(), list, 1e-3);
  const MachineFit fit = fit_machine(dgx_a100(), points);
  EXPECT_EQ(fit.machine.efficiency.products, 1);
  EXPECT_NO_THROW(parse_machine(machine_text(fit.machine), "fitted.json"));
}

// The fit converges from any start: from the largest constants that a file may have, and from
// constants far too small, where a full step of the linearised problem overshoots.
TEST(MachineFit, ComesFromAnyStart) {
  const std::vector<Config> list = configs();
  Machine made = dgx_a100();
  made.efficiency = {.products = 0.61, .memory = 0.55, .links = 0.42};
  const std::vector<FitPoint> points = points_on(made, list);
  for (const Machine::Efficiency start :
       {Machine::Efficiency{1, 1, 1}, {0.02, 0.02, 0.02}, {1, 0.01, 1}}) {
    Machine machine = made;
    machine.efficiency = start;
    const MachineFit fit = fit_machine(machine, points);
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_NEAR(fit.after[i] / points[i].seconds, 1, 0.1)
          << start.products << " " << start.memory;
    }
  }
}

// If one constant is at its limit, the other constants are still fitted.
TEST(MachineFit, FitsTheOthersIfOneIsAtItsLimit) {
  const std::vector<Config> list = configs();
  Machine made = dgx_a100();
  made.efficiency = {.products = 1, .memory = 0.55, .links = 0.42};
  // All times are a little shorter than the machine can reach.
  const std::vector<FitPoint> points = points_on(made, list, 0.95);
  Machine machine = made;
  machine.efficiency = {.products = 1, .memory = 0.3, .links = 0.3};
  const MachineFit fit = fit_machine(machine, points);
  EXPECT_EQ(fit.machine.efficiency.products, 1);
  double error = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    error += std::pow(std::log(fit.after[i] / points[i].seconds), 2);
  }
  EXPECT_LT(error, 0.003);
}

// The times contradict each other, and the start is far off: a full step of the linearised problem
// overshoots, and a part of it is still an improvement.
TEST(MachineFit, TakesAPartOfAStepThatOvershoots) {
  const std::vector<Config> list = configs();
  Machine machine = dgx_a100();
  machine.efficiency = {.products = 1, .memory = 0.001, .links = 0.001};
  std::vector<FitPoint> points;
  double factor = 30;
  for (const Config& config : list) {
    points.push_back({"", &config, false, factor * predicted_seconds(config, dgx_a100(), false)});
    factor = 1 / factor;
  }
  const auto error = [&](const std::vector<double>& predicted) {
    double sum = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      sum += std::pow(std::log(predicted[i] / points[i].seconds), 2);
    }
    return sum;
  };
  const MachineFit fit = fit_machine(machine, points);
  EXPECT_LT(error(fit.after), 0.5 * error(fit.before));
}

TEST(MachineFit, AConstantThatNoPointDependsOnStays) {
  // One device has no links.
  const Config alone = config_of({8, 1024, 16, 1, 1, 1, 1, 8, 4});
  const double seconds = predicted_seconds(alone, dgx_a100(), false);
  const MachineFit fit = fit_machine(dgx_a100(), {{"", &alone, false, 2 * seconds},
                                                  {"", &alone, false, 2 * seconds},
                                                  {"", &alone, false, 2 * seconds}});
  EXPECT_EQ(fit.machine.efficiency.links, dgx_a100().efficiency.links);
  EXPECT_NEAR(fit.after.front(), 2 * seconds, 0.02 * seconds);
  EXPECT_THROW(fit_machine(dgx_a100(), {{"", &alone, false, seconds}}), RequestError);
}

TEST(MachineFit, RanksBeyondTheDevicesHaveOneEachInAReplay) {
  Machine machine = dgx_a100();
  machine.nodes = 1;
  machine.devices_per_node = 2;
  const Config config = config_of({8, 1024, 16, 2, 4, 1, 8, 16, 1});
  EXPECT_TRUE(is_crowded(config.world_size(), machine));
  EXPECT_THROW(predicted_seconds(config, machine, false), RequestError);
  const double replayed = predicted_seconds(config, machine, true);
  const SimulatedStep shared =
      simulate_crowded(config, *architecture_of(config), machine,
                       Assumptions::of(config.zero_optimization, config.parallel));
  EXPECT_EQ(shared.seconds, replayed);
  EXPECT_EQ(shared.shared_devices, 2);
  // There are four times as many ranks as devices, and they sometimes wait for each other.
  EXPECT_GT(shared.shared_seconds, 2 * shared.seconds);
  EXPECT_LE(shared.shared_seconds, 4 * shared.seconds);
  machine.devices_per_node = 8;
  EXPECT_FALSE(is_crowded(config.world_size(), machine));
  EXPECT_LT(replayed, predicted_seconds(config, machine, false));
  machine.inside = {1e18, 1e-12};
  EXPECT_GT(replayed, predicted_seconds(config, machine, false));
}

TEST(Agreement, IsOfTheRelativeErrorsAndTheOrder) {
  std::vector<double> measured, predicted;
  for (int i = 1; i <= 11; ++i) {
    measured.push_back(i);
    predicted.push_back(i * (1 + 0.01 * i));
  }
  Agreement found = agreement(predicted, measured, 0);
  EXPECT_NEAR(found.median_error, 0.06, 1e-9);
  EXPECT_NEAR(found.ninth_decile, 0.10, 1e-9);
  EXPECT_NEAR(found.order, 1, 1e-12);
  EXPECT_EQ(found.choice, 0);
  EXPECT_NEAR(agreement({1.1, 1.3}, {1.0, 1.0}, 0).median_error, 0.2, 1e-12);
  // Spearman's own example of a swap: 1 - 6 Σd² / (n (n² - 1)).
  std::swap(predicted[0], predicted[1]);
  found = agreement(predicted, measured, 0);
  EXPECT_NEAR(found.order, 1 - 6.0 * 2 / (11 * 120), 1e-12);
  EXPECT_NEAR(found.choice, 1, 1e-12);
  // 1 and 1.004 are equal within 1%, whichever of them is predicted to come first.
  EXPECT_EQ(agreement({1.0, 1.001, 2}, {1.004, 1.0, 2}, 0.01).order, 1);
  EXPECT_LT(agreement({1.0, 1.001, 2}, {1.004, 1.0, 2}, 0).order, 1);
}

}  // namespace
}  // namespace trident::testing
