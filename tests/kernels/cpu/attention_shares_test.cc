// The division of attention over threads: every unit once, in order, at about equal cost.
#include "kernels/cpu/attention_shares.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trident::cpu {
namespace {

TEST(AttentionShares, EveryUnitHasOneThread) {
  for (const AttentionShape& shape : {AttentionShape{1, 1000, 1, 1, 64},
                                      {1, 1024, 12, 3, 64},
                                      {2, 300, 6, 6, 64},
                                      {3, 64, 5, 1, 8},
                                      {1, 70, 7, 7, 8},
                                      {5, 2000, 2, 1, 64},
                                      {0, 64, 1, 1, 8},
                                      {1, 300, 3, 1, 8, 500},
                                      {2, 500, 1, 1, 8, 70}}) {
    for (const bool backward : {false, true}) {
      for (int threads = 1; threads <= 40; ++threads) {
        AttentionMask mask;
        if (threads % 3 == 1) mask.window = 100;
        if (threads % 3 == 2) mask.query_begin = 50, mask.window = INT64_MAX;
        const AttentionShares shares(shape, mask, backward, threads);
        const std::int64_t units = shape.heads / shape.groups * shares.units_of_head();
        const std::int64_t tasks = shape.batch * shape.groups;
        ASSERT_LE(shares.threads(), threads);
        std::int64_t at = 0;
        bool divides = false;
        for (int thread = 0; thread < shares.threads(); ++thread) {
          const auto own = shares.of(thread);
          for (std::size_t i = 0; i < own.size(); ++i) {
            EXPECT_EQ(own[i].task * units + own[i].begin, at);
            EXPECT_LT(own[i].begin, own[i].end);
            at = own[i].task * units + own[i].end;
            divides = divides || !shares.is_whole(own[i]);
            EXPECT_TRUE(i == 0 || i + 1 == own.size() || shares.is_whole(own[i]));
          }
        }
        EXPECT_EQ(at, tasks * units);
        EXPECT_EQ(shares.divides(), divides);
        EXPECT_TRUE(tasks % threads != 0 || !divides);
      }
    }
  }
}

// Three heads on two threads: the causal half of a head is divided by its area.
TEST(AttentionShares, AHeadIsDividedByItsCost) {
  const AttentionShape shape{1, 4096, 3, 3, 64};
  for (const bool backward : {false, true}) {
    const AttentionShares shares(shape, {}, backward, 2);
    const auto cost_of = [&](int thread) {
      std::int64_t cost = 0;
      for (const AttentionShare& share : shares.of(thread)) {
        for (std::int64_t unit = share.begin; unit < share.end; ++unit) {
          cost += 1 + (backward ? 64 - unit : unit + 1);  // blocks of scores
        }
      }
      return static_cast<double>(cost);
    };
    EXPECT_NEAR(cost_of(0) / cost_of(1), 1, 0.03);
  }
  const AttentionShares windowed(shape, {.window = 512}, false, 2);
  EXPECT_NEAR(static_cast<double>(windowed.of(0).back().end), 32, 4);  // all units cost the same
}

TEST(AttentionShares, TasksStayUndividedWhereDivisionGainsLittle) {
  EXPECT_FALSE(AttentionShares({769, 1024, 1, 1, 64}, {}, true, 2).divides());
  EXPECT_FALSE(AttentionShares({1, 512, 15, 15, 64}, {}, true, 16).divides());
  EXPECT_TRUE(AttentionShares({1, 512, 3, 3, 64}, {}, true, 2).divides());
  EXPECT_EQ(AttentionShares({1, 4096, 8, 8, 64}, {}, true, 64).threads(), 64);
}

}  // namespace
}  // namespace trident::cpu
