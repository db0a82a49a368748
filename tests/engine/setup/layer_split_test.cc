#include "engine/setup/layer_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "tests/settings/support.h"

namespace trident {
namespace {

// Visits every split into consecutive parts of at least one layer.
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

// The busiest rank's time, then the sums of the squares of the ranks' and of the stages' times.
std::array<double, 3> score(const SplitProblem& problem, const std::vector<std::int64_t>& split) {
  std::map<int, double> ranks;
  double stages = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    const double time = static_cast<double>(split[s]) * problem.layer +
                        (s == 0 ? problem.first : 0) + (s + 1 == split.size() ? problem.last : 0);
    ranks[problem.rank_of_stage[s]] += time;
    stages += time * time;
  }
  double busiest = 0, squares = 0;
  for (const auto& [rank, time] : ranks) {
    busiest = std::max(busiest, time);
    squares += time * time;
  }
  return {busiest, squares, stages};
}

bool fits(const SplitProblem& problem, const std::vector<std::int64_t>& split) {
  std::map<int, std::int64_t> held;
  for (std::size_t s = 0; s < split.size(); ++s) held[problem.rank_of_stage[s]] += split[s];
  return std::all_of(held.begin(), held.end(), [&](const auto& rank) {
    return problem.most.empty() ||
           rank.second <= problem.most[static_cast<std::size_t>(rank.first)];
  });
}

TEST(LayerSplit, NoOtherSplitIsBetterByRanksAndThenByStages) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0.5, 2.0);
  int unfit = 0;
  for (int round = 0; round < 600; ++round) {
    const int chunks = 1 + static_cast<int>(random() % 3);
    const int ranks = 1 + static_cast<int>(random() % (chunks == 1 ? 5 : 3));
    const int stages = ranks * chunks;
    SplitProblem problem{
        .layers = stages + static_cast<std::int64_t>(random() % 7),
        .layer = uniform(random),
        .first = random() % 2 ? uniform(random) : 0,
        .last = random() % 2 ? 4 * uniform(random) : 0,
        .rank_of_stage = rank_of_stages(ranks, chunks, random() % 2 && chunks == 2)};
    if (random() % 2) {
      for (int r = 0; r < ranks; ++r) {
        problem.most.push_back(problem.layers / ranks + static_cast<int>(random() % 4) - 1);
      }
    }
    std::array<double, 3> best{INFINITY, INFINITY, INFINITY};
    each_split(problem.layers, stages, [&](const auto& split) {
      if (!fits(problem, split)) return;
      const auto mine = score(problem, split);
      for (std::size_t i = 0; i < 3; ++i) {
        if (mine[i] > best[i] + 1e-9) return;
        if (mine[i] < best[i] - 1e-9) {
          best = mine;
          return;
        }
      }
    });
    const auto found = balanced_split(problem);
    if (best[0] == INFINITY) {
      EXPECT_TRUE(found.empty());
      ++unfit;
      continue;
    }
    ASSERT_EQ(std::ssize(found), stages);
    EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::int64_t{0}), problem.layers);
    EXPECT_TRUE(fits(problem, found));
    const auto mine = score(problem, found);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(mine[i], best[i], 1e-9) << i;
  }
  EXPECT_GT(unfit, 5);
}

// Windows make some layers cheaper. The stages then differ in their numbers of layers.
TEST(LayerSplit, LayersThatDifferCountByThemselves) {
  SplitProblem problem{.layers = 8, .layer = 2.5, .rank_of_stage = {0, 1}};
  EXPECT_EQ(balanced_split(problem), (std::vector<std::int64_t>{4, 4}));
  problem.each_layer = {1, 1, 1, 3.4, 3.4, 3.4, 3.4, 3.4};
  EXPECT_EQ(balanced_split(problem), (std::vector<std::int64_t>{5, 3}));
  problem.most = {4, 8};
  EXPECT_EQ(balanced_split(problem), (std::vector<std::int64_t>{4, 4}));
}

}  // namespace
}  // namespace trident
