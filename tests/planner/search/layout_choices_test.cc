#include "planner/search/layout_choices.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "engine/setup/from_config.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::Contains;
using ::testing::Not;
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
  asked.load.constraints = built_in_constraints();
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

TEST(LayoutChoices, HaveTheRanksAndTheBatchOfTheRequestEachOnce) {
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
  // ZB-V also takes fewer micro-batches than fill its pipeline.
  EXPECT_TRUE(std::ranges::any_of(all, [](const Layout& one) {
    return one.schedule == "zbv" && one.microbatches < 2 * one.pp;
  }));
  EXPECT_THAT(pruned, Contains("tensor parallelism across nodes"));  // 16 ranks, nodes of 8
  EXPECT_THAT(pruned, Contains("more stages than layers"));
  EXPECT_THAT(pruned, Contains("the global batch doesn't divide by the copies of the model"));
}

// The search chooses each setting that isn't listed as held, although the config sets it.
TEST(LayoutChoices, KeepTheSettingsThatAreHeld) {
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
  // The config itself sets the schedule.
  EXPECT_THAT(choices.set_of(all.front()), Not(Contains(StartsWith("pipeline.schedule="))));
  EXPECT_THAT(choices.set_of_all(all.front()), Contains("pipeline.schedule=zb_h1"));
}

TEST(LayoutChoices, RanksShareLongSamples) {
  LayoutRequest asked = choosing({"pipeline.schedule", "batch.micro_batch_size"});
  const std::string usual = R"("sequence_length": 1024)";
  asked.written.replace(asked.written.find(usual), usual.size(), R"("sequence_length": 16384)");
  std::set<std::int64_t> sizes;
  for (const Layout& one : layouts_on(LayoutChoices(asked), 16)) {
    EXPECT_EQ(one.tp * one.cp * one.pp * one.dp, 16);
    sizes.insert(one.cp);
  }
  EXPECT_EQ(sizes, (std::set<std::int64_t>{1, 2, 4}));
}

// The config may leave out axes of one rank in its order; a layout gives them more.
TEST(LayoutChoices, LayoutsOfAConfigWithAPartOfTheRankOrderAreValid) {
  LayoutRequest asked =
      choosing({"pipeline.schedule", "zero_optimization.stage", "batch.micro_batch_size"});
  const std::string parallel = R"("parallel": {"data_parallel_size": 1)";
  asked.written.insert(asked.written.find(parallel) + parallel.size(), R"(, "rank_order": "pp")");
  const LayoutChoices choices(asked);
  const std::vector<Layout> all = layouts_on(choices, 4);
  ASSERT_FALSE(all.empty());
  bool has_two_stages = false;
  for (const Layout& one : all) {
    const Config config = choices.parse(choices.set_of_all(one));
    EXPECT_EQ(config.parallel.rank_order, "pp-tp-cp-dp");
    EXPECT_EQ(config.parallel.pipeline_model_parallel_size, one.pp);
    EXPECT_EQ(config.parallel.data_parallel_size, one.dp);
    if (one.pp != 2 || one.dp != 2) continue;
    has_two_stages = true;
    // The pipeline's ranks are neighbours, as the config asks.
    EXPECT_EQ(mesh_of(config.parallel).pipeline(0), (std::vector<int>{0, 1}));
  }
  EXPECT_TRUE(has_two_stages);
}

}  // namespace
}  // namespace trident::testing
