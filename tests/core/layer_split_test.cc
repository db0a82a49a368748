#include "core/layer_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "config_support.h"

namespace trident {
namespace {

// Every split into consecutive parts of at least one layer.
void each_split(std::int64_t layers, std::int64_t stages,
                const std::function<void(const std::vector<std::int64_t>&)>& visit) {
  std::vector<std::int64_t> split;
  const std::function<void(std::int64_t)> go = [&](std::int64_t left) {
    if (std::ssize(split) + 1 == stages) {
      split.push_back(left);
      visit(split);
      split.pop_back();
      return;
    }
    for (std::int64_t n = 1; n <= left - (stages - 1 - std::ssize(split)); ++n) {
      split.push_back(n);
      go(left - n);
      split.pop_back();
    }
  };
  go(layers);
}

TEST(LayerSplit, NoOtherSplitHasAShorterSlowestStage) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0.5, 2.0);
  int unfit = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int64_t layers = 1 + static_cast<std::int64_t>(random() % 10);
    const std::int64_t stages = 1 + static_cast<std::int64_t>(random() % layers);
    SplitProblem problem;
    for (int i = 0; i < layers; ++i) problem.layer_time.push_back(uniform(random));
    problem.first = random() % 2 ? uniform(random) : 0;
    problem.last = random() % 2 ? 4 * uniform(random) : 0;
    if (random() % 2) {
      for (int i = 0; i < layers; ++i) problem.layer_memory.push_back(uniform(random));
      for (int s = 0; s < stages; ++s) problem.base_memory.push_back(uniform(random));
      problem.limit = 1.0 + 1.5 * static_cast<double>(layers) / static_cast<double>(stages);
    }
    const auto times = [&](const std::vector<std::int64_t>& split) -> std::vector<double> {
      std::vector<double> result;
      std::size_t layer = 0;
      for (std::size_t s = 0; s < split.size(); ++s) {
        double time = (s == 0 ? problem.first : 0) + (s + 1 == split.size() ? problem.last : 0);
        double memory = problem.base_memory.empty() ? 0 : problem.base_memory[s];
        for (int i = 0; i < split[s]; ++i, ++layer) {
          time += problem.layer_time[layer];
          if (!problem.layer_memory.empty()) memory += problem.layer_memory[layer];
        }
        if (!problem.layer_memory.empty() && memory > problem.limit) return {};
        result.push_back(time);
      }
      return result;
    };
    const auto slowest = [](const std::vector<double>& t) {
      return *std::max_element(t.begin(), t.end());
    };
    double best = INFINITY, squares = INFINITY;
    each_split(layers, stages, [&](const auto& split) {
      const auto t = times(split);
      if (t.empty()) return;
      double sum = 0;
      for (const double x : t) sum += x * x;
      if (slowest(t) < best - 1e-12) {
        best = slowest(t);
        squares = sum;
      } else if (slowest(t) < best + 1e-12) {
        squares = std::min(squares, sum);
      }
    });
    const auto found = balanced_split(problem, stages);
    if (best == INFINITY) {
      EXPECT_TRUE(found.empty());
      ++unfit;
      continue;
    }
    ASSERT_EQ(std::ssize(found), stages);
    const auto t = times(found);
    ASSERT_FALSE(t.empty()) << "does not fit the memory";
    EXPECT_NEAR(slowest(t), best, 1e-12);
    double sum = 0;
    for (const double x : t) sum += x * x;
    EXPECT_NEAR(sum, squares, 1e-9);
  }
  EXPECT_GT(unfit, 5);
}

TEST(LayerSplit, CostsAreTheFlopsOfTheProducts) {
  const Config config = small_config();
  const LayerCosts costs = layer_costs(config);
  const double h = 64, s = 32, v = 256;
  const double tokens = s * static_cast<double>(config.batch.micro_batch_size);
  // 12 h² weights a layer; attention's scores and sums over half of the positions.
  EXPECT_DOUBLE_EQ(costs.layer.backward_weight, 2 * tokens * 12 * h * h);
  EXPECT_DOUBLE_EQ(costs.layer.forward, 2 * tokens * 12 * h * h + 4 * tokens * h * s / 2);
  EXPECT_GT(costs.layer.backward_input, costs.layer.forward);
  EXPECT_DOUBLE_EQ(costs.head.total(), 6 * tokens * h * v);
  const auto stages = stage_costs(costs, {1, 3});
  EXPECT_DOUBLE_EQ(stages[0].forward, costs.layer.forward);
  EXPECT_DOUBLE_EQ(stages[1].forward, 3 * costs.layer.forward + costs.head.forward);
  EXPECT_DOUBLE_EQ(stages[1].backward_weight, 3 * costs.layer.backward_weight);
}

}  // namespace
}  // namespace trident
