#include "planner/simulation/failures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

namespace trident::testing {
namespace {

// Simulates a long run, failure by failure.
double simulated_goodput(double interval, double cost, double restart, double mtbf) {
  std::mt19937_64 generator(7);
  std::exponential_distribution<double> next(1 / mtbf);
  constexpr int segments = 200'000;
  double clock = 0, failure = next(generator);
  for (int done = 0; done < segments;) {
    if (clock + interval + cost <= failure) {
      clock += interval + cost;
      ++done;
      continue;
    }
    // A restart may fail, too.
    do {
      clock = failure;
      failure = clock + next(generator);
    } while (failure < clock + restart);
    clock += restart;
  }
  return segments * interval / clock;
}

TEST(Failures, GoodputIsThatOfARunFailureByFailure) {
  for (const auto& [interval, cost, restart, mtbf] :
       {std::tuple(600.0, 30.0, 300.0, 36000.0), std::tuple(3600.0, 60.0, 600.0, 7200.0),
        std::tuple(100.0, 50.0, 10.0, 1000.0)}) {
    EXPECT_NEAR(goodput(interval, cost, restart, mtbf),
                simulated_goodput(interval, cost, restart, mtbf), 0.01);
  }
  EXPECT_NEAR(goodput(1000, 0, 0, 1e12), 1, 1e-6);
}

TEST(Failures, NoIntervalIsMuchBetterThanTheBest) {
  const double mtbf = 24 * 3600, cost = 60, restart = 600;
  const double best = goodput(best_save_interval(cost, mtbf), cost, restart, mtbf);
  for (int i = 0; i < 50; ++i) {
    const double interval = 10 * std::pow(1.2, i);  // to 76,000 seconds
    EXPECT_LE(goodput(interval, cost, restart, mtbf), best + 1e-4) << interval;
  }
}

}  // namespace
}  // namespace trident::testing
