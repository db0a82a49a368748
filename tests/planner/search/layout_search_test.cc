#include "planner/search/layout_search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "planner/search/grid.h"
#include "support/covering.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

// A model of a billion parameters.
constexpr const char* kModel = R"({
  "model": {"num_layers": 8, "hidden_size": 3072, "num_attention_heads": 16, "vocab_size": 51200},
  "parallel": {"data_parallel_size": 1},
  "batch": {"global_batch_size": 64, "micro_batch_size": 1},
  "precision": {"dtype": "bf16"},
  "data": {"train": [{"path": "text"}], "sequence_length": 2048,
           "tokenizer": {"type": "file", "path": "tokenizer.json"}},
  "training": {"train_iters": 100},
  "runtime": {"device": "cuda"}
})";

LayoutRequest request(std::vector<std::int64_t> ranks, std::int64_t memory = 0) {
  LayoutRequest asked{.written = kModel, .machine = dgx_a100()};
  asked.load.constraints = built_in_constraints();
  asked.memory = memory;
  asked.ranks = std::move(ranks);
  asked.global_batch_size = 64;
  asked.threads = 2;
  return asked;
}

// A hand-written grid of sizes that an experienced person would try.
TEST(LayoutSearch, NoneOfAGridIsBetterThanTheFastestFound) {
  const LayoutRequest asked = request({8}, 40'000'000'000);
  const LayoutSearch found = search_layouts(asked);
  ASSERT_FALSE(found.plans.empty());
  const double best = found.plans.front().seconds;
  const Config base = parse_config(kModel, {}, asked.load).config;
  int compared = 0;
  const std::string grid = tests_are_full()
                               ? "tp=1,2,4 pp=1,2,4 dp=1,2,4,8 chunks=1,2 zero=0,1 sp=true,false "
                                 "schedule=1f1b,zb_h1,interleaved_1f1b,zbv micro_batch_size=2,4"
                               : "tp=1,2,4 pp=1,2,4 dp=1,2,4,8 chunks=1,2 zero=1 sp=true "
                                 "schedule=1f1b,zb_h1,zbv micro_batch_size=2,4";
  for (const GridPoint& point : grid_points(parse_grid(grid, base.parallel))) {
    try {
      const Config config = parse_config(kModel, point.set, asked.load).config;
      if (config.world_size() != 8) continue;
      const SimulatedStep step =
          simulate_step(config, *architecture_of(config), asked.machine,
                        Assumptions::of(config.zero_optimization, config.parallel));
      if (step.peak_bytes > asked.memory) continue;
      EXPECT_GE(step.seconds, best * (1 - 1e-9)) << point.label;
      ++compared;
    } catch (const RequestError&) {
      continue;
    }
  }
  EXPECT_GT(compared, tests_are_full() ? 100 : 10);
}

TEST(LayoutSearch, FindsConfigsThatFitAndTakeTheReportedTimeAndMemory) {
  const LayoutRequest asked = request({4, 8}, 30'000'000'000);
  const LayoutSearch found = search_layouts(asked);
  std::map<std::int64_t, int> of_size;
  for (const FoundLayout& plan : found.plans) {
    const Config config = parse_config(plan.written, {}, asked.load).config;
    ++of_size[config.world_size()];
    const SimulatedStep step =
        simulate_step(config, *architecture_of(config), asked.machine,
                      Assumptions::of(config.zero_optimization, config.parallel));
    EXPECT_EQ(step.seconds, plan.seconds);
    EXPECT_EQ(step.peak_bytes, plan.peak_bytes);
    EXPECT_LE(plan.peak_bytes, asked.memory);
    EXPECT_LT(plan.recomputed + plan.waiting + plan.communication + plan.kernels, 1);
  }
  EXPECT_GE(of_size[4], 3);
  EXPECT_GE(of_size[8], 5);
  EXPECT_GT(found.pruned.at("needs too much memory, by its bound"), 0);
  // No other layout beats a layout of the front.
  int on_front = 0;
  for (const FoundLayout& plan : found.plans) {
    const bool beaten =
        std::any_of(found.plans.begin(), found.plans.end(), [&](const FoundLayout& other) {
          return other.seconds < plan.seconds && other.peak_bytes < plan.peak_bytes &&
                 other.config.world_size() <= plan.config.world_size();
        });
    EXPECT_FALSE(plan.on_front && beaten);
    on_front += plan.on_front ? 1 : 0;
  }
  EXPECT_GT(on_front, 2);
}

// The search finds the same layouts however many are printed. Layouts that hardly differ share a
// line.
TEST(LayoutSearch, TheResultDependsNeitherOnTheNumberPrintedNorOnThreads) {
  LayoutRequest asked = request({2});
  const LayoutSearch found = search_layouts(asked);
  LayoutRequest few = asked;
  few.wanted = 1;
  few.threads = 1;
  const LayoutSearch same = search_layouts(few);
  ASSERT_EQ(same.plans.size(), found.plans.size());
  for (std::size_t i = 0; i < found.plans.size(); ++i) {
    EXPECT_EQ(same.plans[i].set, found.plans[i].set);
  }
  EXPECT_EQ(same.simulated, found.simulated);
  EXPECT_EQ(layouts_json(same, few)["plans"].size(), 1);
  EXPECT_THAT(layouts_text(same, few),
              HasSubstr(fmt::format("{} more that are slower and take less memory: --plans {}",
                                    found.plans.size() - 1, found.plans.size())));
  for (std::size_t i = 0; i + 1 < found.plans.size(); ++i) {
    const FoundLayout &plan = found.plans[i], &next = found.plans[i + 1];
    EXPECT_TRUE(next.seconds > 1.01 * plan.seconds ||
                static_cast<double>(next.peak_bytes) < 0.97 * static_cast<double>(plan.peak_bytes));
    for (const FoundLayout& near : plan.near) {
      EXPECT_LE(near.seconds, 1.01 * plan.seconds);
      EXPECT_LE(near.peak_bytes, plan.peak_bytes);
    }
  }
}

TEST(LayoutSearch, ABetterMachineIsNeverWorse) {
  const auto best = [](const LayoutRequest& asked) {
    return search_layouts(asked).plans.front().seconds;
  };
  LayoutRequest asked = request({4}, 40'000'000'000);
  asked.fastest = true;
  const double before = best(asked);
  LayoutRequest more = asked;
  more.memory = 60'000'000'000;
  EXPECT_LE(best(more), before);
  more = asked;
  more.machine.inside.bandwidth *= 2;
  EXPECT_LE(best(more), before);
  more = asked;
  more.machine.device.memory_bandwidth *= 2;
  EXPECT_LT(best(more), before);
  more = asked;
  for (auto& [dtype, rate] : more.machine.device.peak) rate *= 2;
  EXPECT_LT(best(more), before);
}

// The fastest layouts take far more memory than the smallest ones.
TEST(LayoutSearch, FindsLayoutsThatFitScarceMemory) {
  const LayoutSearch plenty = search_layouts(request({4}));
  std::int64_t least = plenty.plans.front().peak_bytes;
  for (const FoundLayout& plan : plenty.plans) least = std::min(least, plan.peak_bytes);
  const LayoutSearch scarce = search_layouts(request({4, 77}, least));
  ASSERT_FALSE(scarce.plans.empty());
  for (const FoundLayout& plan : scarce.plans) EXPECT_LE(plan.peak_bytes, least);
  EXPECT_THAT(scarce.nothing_on, ::testing::ElementsAre(77));
}

// The vocabulary costs as much as five layers, and the links are too slow for wide tensor
// parallelism.
TEST(LayoutSearch, SplitsLayersByTheirStagesWorkWhereThatIsFaster) {
  LayoutRequest asked = request({16});
  asked.machine = machine_named("ethernet_16x100g");
  nlohmann::json model = nlohmann::json::parse(kModel);
  model["model"]["num_layers"] = 14;
  model["model"]["vocab_size"] = 256000;
  asked.written = model.dump();
  asked.fastest = true;
  const LayoutSearch found = search_layouts(asked);
  const FoundLayout& best = found.plans.front();
  std::vector<std::string> even = best.set;
  std::replace(even.begin(), even.end(), std::string("pipeline.layer_split=auto"),
               std::string("pipeline.layer_split=even"));
  ASSERT_NE(even, best.set);
  const Config config = parse_config(asked.written, even, asked.load).config;
  const SimulatedStep step =
      simulate_step(config, *architecture_of(config), asked.machine,
                    Assumptions::of(config.zero_optimization, config.parallel));
  EXPECT_LT(best.seconds, 0.95 * step.seconds);
  EXPECT_THAT(layouts_text(found, asked), HasSubstr(", layers "));
}

TEST(LayoutSearch, TheGlobalBatchStays) {
  LayoutRequest asked = request({4});
  asked.written = kModel;
  asked.global_batch_size = 32;
  for (const FoundLayout& plan : search_layouts(asked).plans) {
    EXPECT_EQ(plan.config.batch.global_batch_size, 32);
    EXPECT_EQ(parse_config(plan.written, {}, asked.load).config.batch.global_batch_size, 32);
  }
}

TEST(LayoutSearch, WhereNothingFitsItNamesTheMissingMemoryAndEnoughRanks) {
  try {
    search_layouts(request({2}, 3'000'000'000));
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("nothing fits 2.79 GiB a rank on 2 ranks"));
    EXPECT_THAT(error.what(), HasSubstr("iB more; on "));
    const std::string text = error.what();
    const auto at = text.find("iB more; on ");
    ASSERT_THAT(text, HasSubstr(" ranks one takes "));
    // The number in the message is right, and the smallest of the numbers tried.
    const std::int64_t ranks = std::stoll(text.substr(at + 12));
    EXPECT_FALSE(search_layouts(request({ranks}, 3'000'000'000)).plans.empty());
    EXPECT_THROW(search_layouts(request({ranks / 2}, 3'000'000'000)), RequestError);
  }
  // The search also tries more ranks than the machine has devices, and the message says so.
  LayoutRequest small = request({2}, 3'000'000'000);
  small.machine.nodes = 1;
  small.machine.devices_per_node = 2;
  try {
    search_layouts(small);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("iB, but "));
    EXPECT_THAT(error.what(), HasSubstr(" has 2 devices"));
  }
  LayoutRequest few = request({16});
  few.machine.nodes = 1;
  EXPECT_THROW(search_layouts(few), RequestError);
  few.machine.nodes = 0;
  few.machine.device.peak.erase(DType::bf16);
  EXPECT_THROW(search_layouts(few), RequestError);
  try {
    search_layouts(request({7 * 11}));
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no layout is valid: "));
  }
}

// The message names the held setting that fits no layout, and not a size of memory.
TEST(LayoutSearch, WhereNoLayoutIsValidItNamesTheCommonestReason) {
  LayoutRequest asked = request({4});
  const std::string stages = R"("parallel": {"data_parallel_size": 1})";
  asked.written.replace(asked.written.find(stages), stages.size(),
                        stages + R"(, "pipeline": {"layer_split": [1, 1]})");
  asked.held = {"pipeline.layer_split"};
  try {
    search_layouts(asked);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no layout is valid: not valid: config: /pipeline/layer_split"));
  }
}

}  // namespace
}  // namespace trident::testing
