#include "training/lab/layout_choices.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "lab_machines.h"
#include "training/lab/layout_estimate.h"
#include "training/lab/machine_fit.h"
#include "training/setup/from_config.h"

namespace trident::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::PrintToString;
using ::testing::StartsWith;

constexpr const char* kChosenModel = R"({
  "model": {"num_layers": 12, "hidden_size": 1536, "num_attention_heads": 12, "vocab_size": 51200},
  "parallel": {"data_parallel_size": 1},
  "batch": {"global_batch_size": 48, "micro_batch_size": 2},
  "zero_optimization": {"stage": 1},
  "pipeline": {"schedule": "zb_h1"},
  "precision": {"dtype": "bf16"},
  "data": {"train": [{"path": "text"}], "sequence_length": 1024,
           "tokenizer": {"type": "file", "path": "tokenizer.json"}},
  "training": {"train_iters": 100},
  "runtime": {"device": "cuda"}
})";

LayoutRequest choosing(std::vector<std::string> held = {}) {
  LayoutRequest asked{.written = kChosenModel, .machine = dgx_a100(), .global_batch_size = 48};
  asked.load.rules = built_in_rules();
  asked.held = std::move(held);
  return asked;
}

std::vector<Layout> layouts_on(const LayoutChoices& choices, std::int64_t ranks,
                               std::set<std::string>* pruned = nullptr) {
  std::vector<Layout> all;
  choices.each(
      ranks, [&](const Layout& one) { all.push_back(one); },
      [&](const std::string& reason) {
        if (pruned != nullptr) pruned->insert(reason);
      });
  return all;
}

TEST(LayoutChoices, AreOfSoManyRanksAndOneBatchEachOnce) {
  const LayoutRequest asked = choosing();
  const LayoutChoices choices(asked);
  std::set<std::string> pruned;
  const std::vector<Layout> all = layouts_on(choices, 32, &pruned);
  ASSERT_GT(all.size(), 500);
  std::set<std::vector<std::string>> sets;
  for (const Layout& one : all) {
    EXPECT_EQ(one.tp * one.pp * one.dp, 32);
    EXPECT_EQ(one.dp * one.micro * one.microbatches, 48);
    EXPECT_TRUE(sets.insert(choices.set_of(one)).second) << one.schedule;
  }
  EXPECT_THAT(pruned, Contains("tensor parallelism across nodes"));  // 16 of 8 devices
  EXPECT_THAT(pruned, Contains("more stages than layers"));
  EXPECT_THAT(pruned, Contains("the global batch doesn't divide by the copies of the model"));
}

// What isn't said to be held is chosen anew, though the config gives it.
TEST(LayoutChoices, HoldWhatIsGiven) {
  const LayoutRequest free = choosing();
  std::set<std::string> schedules, zeros, micros;
  for (const Layout& one : layouts_on(LayoutChoices(free), 8)) {
    schedules.insert(one.schedule);
    zeros.insert(std::to_string(one.zero));
    micros.insert(std::to_string(one.micro));
  }
  EXPECT_THAT(schedules,
              ::testing::UnorderedElementsAre("1f1b", "zb_h1", "zbv", "interleaved_1f1b"));
  EXPECT_EQ(zeros.size(), 4);
  EXPECT_GT(micros.size(), 3);

  const LayoutRequest asked =
      choosing({"pipeline.schedule", "zero_optimization.stage", "batch.micro_batch_size"});
  const LayoutChoices choices(asked);
  const std::vector<Layout> all = layouts_on(choices, 8);
  ASSERT_FALSE(all.empty());
  for (const Layout& one : all) {
    EXPECT_EQ(one.schedule, "zb_h1");
    EXPECT_EQ(one.zero, 1);
    EXPECT_EQ(one.micro, 2);
    EXPECT_EQ(one.chunks, 1);
  }
  // The config says it itself.
  EXPECT_THAT(choices.set_of(all.front()), Not(Contains(StartsWith("pipeline.schedule="))));
  EXPECT_THAT(choices.set_of_all(all.front()), Contains("pipeline.schedule=zb_h1"));
}

// Estimates need to find what is worth simulating: their order is that of whole simulations, and
// the best of these is among the first of them.
TEST(LayoutEstimator, OrdersLayoutsAsTheSimulationDoes) {
  const LayoutRequest asked = choosing();
  const LayoutChoices choices(asked);
  LayoutEstimator estimator(asked, choices);
  std::vector<double> estimated, simulated, bytes, planned;
  for (Layout one : layouts_on(choices, 8)) {
    if (one.micro != 2 || one.recompute == "selective" || !estimator.estimate(one).empty())
      continue;
    try {
      const Config config = choices.parse(choices.set_of(one));
      const SimulatedStep step =
          simulate_step(config, *architecture_of(config), asked.machine, Habits::of(config));
      estimated.push_back(one.seconds), simulated.push_back(step.seconds);
      bytes.push_back(one.bytes), planned.push_back(static_cast<double>(step.peak_bytes));
    } catch (const RequestError&) {
      continue;  // an estimate isn't asked whether a schedule takes so few micro-batches
    }
  }
  ASSERT_GT(estimated.size(), 100);
  EXPECT_GT(agreement(estimated, simulated, 0).order, 0.75);
  EXPECT_GT(agreement(bytes, planned, 0).order, 0.75);
  const double best = *std::min_element(simulated.begin(), simulated.end());
  std::size_t before = 0;  // that are estimated to be faster than the best one is
  const auto at = static_cast<std::size_t>(std::find(simulated.begin(), simulated.end(), best) -
                                           simulated.begin());
  for (const double one : estimated) before += one < estimated[at] ? 1 : 0;
  EXPECT_LT(before, estimated.size() / 30);
}

TEST(LayoutEstimator, SaysWhyALayoutIsNone) {
  const LayoutRequest asked = choosing();
  const LayoutChoices choices(asked);
  LayoutEstimator estimator(asked, choices);
  Layout one{.tp = 8, .dp = 1, .micro = 1, .microbatches = 48};
  EXPECT_THAT(estimator.estimate(one), HasSubstr("num_attention_heads"));
  // 12 heads divide by 4.
  one.tp = 4;
  EXPECT_EQ(estimator.estimate(one), "");
  EXPECT_GT(one.seconds, 0);
  EXPECT_GT(one.bytes, 0);
}

}  // namespace
}  // namespace trident::testing
