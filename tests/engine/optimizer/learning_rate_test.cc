#include "engine/optimizer/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace trident::testing {
namespace {

TEST(LearningRate, AllSixTypesAtHandComputedPoints) {
  // 4 iterations of warm-up to 0.8, then decay to 0.1 at iteration 12; t = 1/8 at k = 4.
  const auto rate = [](const std::string& type, std::int64_t k) {
    const LrSchedulerConfig config{.type = type,
                                   .warmup_iters = 4,
                                   .decay_iters = 12,
                                   .min_lr = 0.1,
                                   .power = 2.0,
                                   .gamma = 0.25,
                                   .milestones = {6, 8, 9}};
    return learning_rate(config, 0.8, k);
  };
  for (const char* type :
       {"constant", "linear", "cosine", "polynomial", "exponential", "piecewise"}) {
    SCOPED_TRACE(type);
    EXPECT_DOUBLE_EQ(rate(type, 0), 0.2);
    EXPECT_DOUBLE_EQ(rate(type, 2), 0.6);
    EXPECT_DOUBLE_EQ(rate(type, 3), 0.8);
  }
  EXPECT_DOUBLE_EQ(rate("constant", 4), 0.8);
  EXPECT_DOUBLE_EQ(rate("constant", 100), 0.8);
  EXPECT_DOUBLE_EQ(rate("linear", 4), 0.1 + 0.7 * 0.875);
  EXPECT_DOUBLE_EQ(rate("linear", 7), 0.45);
  EXPECT_DOUBLE_EQ(rate("cosine", 5), 0.1 + 0.7 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(rate("cosine", 7), 0.45);
  EXPECT_DOUBLE_EQ(rate("polynomial", 7), 0.1 + 0.7 * 0.25);
  EXPECT_DOUBLE_EQ(rate("exponential", 7), 0.1 + 0.7 * 0.5);
  EXPECT_DOUBLE_EQ(rate("exponential", 11), 0.1 + 0.7 * 0.25);
  for (const char* type : {"linear", "cosine", "polynomial"}) {
    EXPECT_NEAR(rate(type, 11), 0.1, 1e-15) << type;
    EXPECT_NEAR(rate(type, 500), 0.1, 1e-15) << type;
  }
  // A milestone is the last iteration (counted from 1) with the old rate; min_lr is the floor.
  EXPECT_DOUBLE_EQ(rate("piecewise", 5), 0.8);
  EXPECT_DOUBLE_EQ(rate("piecewise", 6), 0.2);
  EXPECT_DOUBLE_EQ(rate("piecewise", 8), 0.1);
  EXPECT_DOUBLE_EQ(rate("piecewise", 9), 0.1);
}

TEST(LearningRate, RestartsAtWholeIterations) {
  LrSchedulerConfig config{.type = "cosine_with_restarts",
                           .warmup_iters = 4,
                           .decay_iters = 12,
                           .min_lr = 0.1,
                           .num_cycles = 2};
  const auto rate = [&](std::int64_t k) { return learning_rate(config, 0.8, k); };
  const double eighth = 0.1 + 0.7 * (1 + std::sqrt(0.5)) / 2;
  EXPECT_DOUBLE_EQ(rate(3), 0.8);
  for (const std::int64_t begin : {4, 8}) {
    EXPECT_DOUBLE_EQ(rate(begin), eighth);
    EXPECT_DOUBLE_EQ(rate(begin + 1), 0.45);
    EXPECT_NEAR(rate(begin + 3), 0.1, 1e-15);
  }
  EXPECT_NEAR(rate(500), 0.1, 1e-15);
  config.cycle_mult = 3;  // a cycle of 2 iterations, then one of 6
  EXPECT_DOUBLE_EQ(rate(4), 0.45);
  EXPECT_NEAR(rate(5), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ(rate(8), 0.45);
  EXPECT_NEAR(rate(11), 0.1, 1e-15);
  // With cycles of any number and lengths, each iteration lies in one cycle, and the last cycle
  // ends at min_lr.
  for (const double mult : {1.0, 1.5, 100.0}) {
    for (const std::int64_t cycles : {1, 3, 7, 8}) {
      config.cycle_mult = mult, config.num_cycles = cycles;
      int ends = 0;
      for (std::int64_t k = 4; k < 12; ++k) {
        EXPECT_GE(rate(k), 0.1 - 1e-15);
        EXPECT_LE(rate(k), 0.8);
        ends += rate(k) < 0.1 + 1e-12 ? 1 : 0;
      }
      EXPECT_NEAR(rate(11), 0.1, 1e-15);
      EXPECT_GE(ends, 1);
      EXPECT_LE(ends, cycles);
      if (mult == 1) {
        EXPECT_EQ(ends, cycles);
      }
    }
  }
}

TEST(LearningRate, StaysAndThenDecays) {
  LrSchedulerConfig config{
      .type = "wsd", .warmup_iters = 2, .decay_iters = 12, .min_lr = 0.1, .wsd_decay_iters = 4};
  const std::map<std::string, double> quarter{{"linear", 0.75},
                                              {"cosine", (1 + std::sqrt(0.5)) / 2},
                                              {"exponential", 2 / std::pow(2, 0.25) - 1},
                                              {"minus_sqrt", 0.5}};
  for (const auto& [style, part] : quarter) {
    config.wsd_decay_style = style;
    const auto rate = [&](std::int64_t k) { return learning_rate(config, 0.8, k); };
    EXPECT_DOUBLE_EQ(rate(0), 0.4);
    for (std::int64_t k = 1; k < 8; ++k) EXPECT_DOUBLE_EQ(rate(k), 0.8);
    EXPECT_DOUBLE_EQ(rate(8), 0.1 + 0.7 * part) << style;
    EXPECT_NEAR(rate(11), 0.1, 1e-15) << style;
    EXPECT_NEAR(rate(99), 0.1, 1e-15) << style;
  }
}

}  // namespace
}  // namespace trident::testing
