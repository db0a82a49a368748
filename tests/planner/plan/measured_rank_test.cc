// A rank that runs by itself runs its plan, kernel by kernel and byte by byte.
#include <gmock/gmock.h>

#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "planner/plan/planned_rank.h"
#include "run/processes/devices.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

struct MeasuredCase {
  const char* model;
  Layout layout;
  Overrides overrides;
};

std::string text_of(const TracedOperation& one) {
  std::string text(one.name);
  for (int i = 0; i < one.shape.rank(); ++i) text += " " + std::to_string(one.shape.dim(i));
  return text + " " + std::string(name_of(one.dtype)) + " " + std::to_string(one.bytes_read) + " " +
         std::to_string(one.bytes_written) + " " + std::to_string(one.group) + " " +
         std::to_string(one.bytes_sent) + " " + std::to_string(one.action);
}

std::vector<std::string> texts_of(const TracedStep& step) {
  std::vector<std::string> texts;
  for (const TracedOperation& one : step.trace.operations()) texts.push_back(text_of(one));
  return texts;
}

class MeasuredRankTest : public ::testing::TestWithParam<MeasuredCase> {};

TEST_P(MeasuredRankTest, RunsTheOperationsAndTakesTheMemoryOfThePlan) {
  const MeasuredCase& c = GetParam();
  const TempDir dir;
  const Config config = seeded_config(c.model, dir.path(), c.overrides + overrides_of(c.layout));
  const RankPlanner planner(config, *architecture_of(config), schedule_of(config));
  const Devices devices(config);
  const std::vector<int> pipeline = mesh_of(config.parallel).pipeline(0);
  for (std::size_t place = 0; place < pipeline.size(); ++place) {
    SCOPED_TRACE("place " + std::to_string(place));
    const MeasuredRank measured = planner.measure(pipeline[place], devices.of(0), 2);
    EXPECT_EQ(texts_of(measured.step), texts_of(planner.trace(static_cast<int>(place))));
    // The plan includes the memory for a step's report. Here no rank sends one.
    const PlannedMemory planned = planner.plan_memory(static_cast<int>(place)).memory;
    for (const Category category : {Category::parameter, Category::gradient, Category::optimizer,
                                    Category::activation, Category::workspace}) {
      EXPECT_EQ(measured.memory.of(category), planned.of(category)) << name_of(category);
    }
    EXPECT_LE(measured.memory.of(Category::communication), planned.of(Category::communication));
    double kernels = 0;
    for (const TracedOperation& one : measured.step.trace.operations()) {
      if (one.group < 0) {
        EXPECT_GT(one.seconds, 0) << one.name;
        kernels += one.seconds;
      }
    }
    EXPECT_GT(kernels, 0);
    EXPECT_LT(kernels, *std::min_element(measured.seconds.begin(), measured.seconds.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MeasuredRankTest,
    ::testing::Values(
        MeasuredCase{"gpt2", {1, 1, 1}, {}},
        MeasuredCase{"llama", {2, 2, 2}, {"parallel.sequence_parallel=true"}},
        MeasuredCase{"gpt2", {2, 1, 2}, {"zero_optimization.stage=1", "precision.dtype=bf16"}},
        MeasuredCase{"llama", {4, 1, 1}, {"zero_optimization.stage=3"}},
        MeasuredCase{"gpt2", {1, 1, 4}, {"pipeline.schedule=zb_h1"}},
        // In a run of few iterations, the last ones would do less work.
        MeasuredCase{"llama",
                     {1, 1, 2},
                     {"pipeline.schedule=pipedream_2bw", "gradient_clipping=0",
                      "model.tie_word_embeddings=false", "training.train_iters=1",
                      "scheduler.warmup_iters=0"}},
        // This case has more ranks than any test machine.
        MeasuredCase{"gpt2",
                     {256, 1, 2},
                     {"zero_optimization.stage=2", "batch.micro_batch_size=1",
                      "batch.gradient_accumulation_steps=2", "batch.global_batch_size=512"}}));

}  // namespace
}  // namespace trident::testing
