// The cost of a run's saves, and the best save intervals for it.
#include "run/loop/save_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "planner/simulation/failures.h"

namespace trident {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Compares with Daly's equations 37 (the estimate) and 20 (a run's wall time), minimised here.
TEST(SaveCosts, TheBestIntervalLosesLeast) {
  const auto wall = [](double interval, double cost, double mtbf) {  // for one second of work
    return mtbf * std::expm1((interval + cost) / mtbf) / interval;
  };
  for (const auto& [cost, mtbf] : {std::pair{5.0, 86400.0}, {60.0, 3600.0}, {300.0, 7200.0}}) {
    double best = 1, least = wall(1, cost, mtbf);
    for (int step = 0; step < 12'000; ++step) {  // up to 160,000 s
      const double interval = std::pow(1.001, step);
      if (wall(interval, cost, mtbf) < least) least = wall(best = interval, cost, mtbf);
    }
    EXPECT_NEAR(best_save_interval(cost, mtbf), best, 0.01 * best);
  }
  EXPECT_EQ(best_save_interval(100, 40), 40);
  EXPECT_EQ(best_save_interval(0, 40), 0);
}

TEST(SaveCosts, CountsWaitsAndSlowerIterations) {
  SaveCosts costs;
  for (int i = 0; i < 2; ++i) costs.iteration(9.0, false);  // the first iterations
  for (int i = 0; i < 20; ++i) costs.iteration(2.0, false);
  for (int i = 0; i < 3; ++i) costs.iteration(2.5, true);
  costs.waited(0.5);
  costs.ended();
  costs.ended();
  EXPECT_DOUBLE_EQ(costs.usual_iteration(), 2.0);
  EXPECT_DOUBLE_EQ(costs.each(), 1.0);
  EXPECT_EQ(best_intervals_text(costs, nullptr, 0, 0), "");
  // Young: sqrt(2 * 1 s * 36000 s) = 268.3 s; Daly: 267.7.
  EXPECT_THAT(best_intervals_text(costs, nullptr, 10, 0),
              HasSubstr("checkpoint.save_interval 134 (every 268 s"));
  SaveCosts cheap;
  EXPECT_EQ(best_intervals_text(costs, &cheap, 10, 0), "");
  cheap.ended();
  cheap.waited(0.02);
  EXPECT_THAT(best_intervals_text(costs, &cheap, 10, 1000),
              AllOf(HasSubstr("checkpoint.local.interval 19 (every 37.9 s"),
                    HasSubstr("checkpoint.save_interval 1341 (every 2.68e+03 s")));
}

// A save costs the time that training waited for it, as in metrics.jsonl. If a save is always in
// progress, its waits still count.
TEST(SaveCosts, OfSavesThatOutlastTheirIntervalAreTheWaits) {
  SaveCosts costs;
  for (int i = 0; i < 4; ++i) costs.iteration(5.0, false);
  for (int i = 0; i < 50; ++i) costs.iteration(2.0, true);
  for (int i = 0; i < 10; ++i) costs.ended();
  costs.waited(5);
  EXPECT_DOUBLE_EQ(costs.usual_iteration(), 2.0);
  EXPECT_DOUBLE_EQ(costs.each(), 0.5);
}

}  // namespace
}  // namespace trident
