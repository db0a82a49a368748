// Tests warnings about experts without tokens, and the statistics that a step reports of routers.
#include "run/loop/idle_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "models/router_statistics.h"
#include "report/metrics_file.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

StepStatistics of(std::vector<std::vector<double>> counts) {
  StepStatistics step;
  step.statistics["tokens_per_expert"] = std::move(counts);
  return step;
}

TEST(IdleExperts, AreNamedOnceAndAgainAfterTokens) {
  IdleExperts experts;
  const StepStatistics lazy = of({{}, {900, 0, 300}}), busy = of({{}, {400, 400, 400}});
  for (int i = 1; i < 10; ++i) EXPECT_THAT(experts.next(lazy), IsEmpty()) << i;
  EXPECT_THAT(experts.next(lazy),
              AllOf(HasSubstr("no token for 10 iterations or more: 1 of layer 1;"),
                    Not(HasSubstr("0 of layer"))));
  EXPECT_THAT(experts.next(lazy), IsEmpty());
  EXPECT_THAT(experts.next(busy), IsEmpty());
  for (int i = 1; i < 10; ++i) EXPECT_THAT(experts.next(lazy), IsEmpty());
  EXPECT_THAT(experts.next(lazy), HasSubstr("1 of layer 1"));
}

// In small batches an expert may well go without tokens.
TEST(IdleExperts, SmallBatchesTakeLonger) {
  IdleExperts experts;
  const StepStatistics lazy = of({{60, 0, 0}});
  for (int i = 1; i < 50; ++i) EXPECT_THAT(experts.next(lazy), IsEmpty()) << i;
  EXPECT_THAT(experts.next(lazy), HasSubstr("1 of layer 0, 2 of layer 0"));
  EXPECT_THAT(IdleExperts().next(StepStatistics()), IsEmpty());
}

TEST(RouterStatistics, AreDerivedFromSums) {
  const ExpertsShape shape{
      .router = {.experts = 2, .topk = 1}, .layers = {1, 2}, .capacity_factor = 1};
  StepStatistics step = of({{}, {6, 2}, {3, 5}});
  step.statistics["kept_pairs"] = {{}, {7}, {8}};
  // Mean probabilities over both layers: 0.6 and 0.4.
  const double unit = 0x1p32;
  step.statistics["probability_sums"] = {{}, {5.6 * unit, 2.4 * unit}, {4 * unit, 4 * unit}};
  derive_router_statistics(shape, 8, step);
  EXPECT_THAT(
      step.statistics["dropped_tokens"],
      ::testing::ElementsAre(IsEmpty(), ::testing::ElementsAre(1), ::testing::ElementsAre(0)));
  // f = 9/16 and 7/16.
  EXPECT_NEAR(step.statistics["load_balancing_loss"][0][0], 2 * (9 * 0.6 + 7 * 0.4) / 16, 1e-9);
  EXPECT_EQ(step.statistics.count("kept_pairs") + step.statistics.count("probability_sums"), 0U);
}

TEST(RouterStatistics, DroppedTokensAreCountedOverAllRanks) {
  const Overrides experts{"model.architecture=mixtral", "training.train_iters=2",
                          "scheduler.warmup_iters=0",
                          R"(model.moe={"num_experts": 4, "router_topk": 2,
                                        "expert_capacity_factor": 1})"};
  const auto lines = [&](const Overrides& layout) {
    const TempDir dir;
    train(seeded_config("llama", dir.path(), experts + layout));
    return read_metrics(dir / "metrics.jsonl");
  };
  const auto one = lines({}), four = lines(overrides_of({2, 2, 1}));
  const auto dropped = one.front()["statistics"]["dropped_tokens"];
  ASSERT_EQ(dropped.size(), 4U);
  EXPECT_GT(dropped[1][0], 0);
  EXPECT_EQ(four.front()["statistics"]["dropped_tokens"], dropped);
  EXPECT_NEAR(four.front()["statistics"]["router_entropy"][2][0].get<double>(),
              one.front()["statistics"]["router_entropy"][2][0].get<double>(), 1e-6);
}

}  // namespace
}  // namespace trident::testing
