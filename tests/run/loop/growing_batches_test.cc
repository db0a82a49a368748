// batch.rampup_batch_size: the order of the samples in every layout and after a resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/temp_dir.h"
#include "tests/checkpoint/checkpoint_runs.h"

namespace trident::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Batches of 2, 2, 2, 4, 6, 8, 8, ... samples. The ramp has 15 samples in three steps.
const Overrides growing{"batch.global_batch_size=8", "batch.micro_batch_size=1",
                        "batch.rampup_batch_size=[2, 2, 15]", "training.train_iters=7",
                        "training.eval_interval=0"};

std::vector<std::int64_t> batches_of(const TrainingSummary& summary) {
  std::vector<std::int64_t> sizes;
  for (const IterationMetrics& m : summary.history) sizes.push_back(m.batch_size);
  return sizes;
}

// With constant weights, a batch's loss is the mean of its samples' losses.
TEST(GrowingBatches, EachHasTheSamplesAfterThoseOfTheOneBefore) {
  const TempDir dir;
  const Overrides still{"optimizer.params.lr=0", "scheduler.type=constant", "scheduler.min_lr=0",
                        "scheduler.warmup_iters=0", "model.hidden_dropout=0"};
  const auto run = [&](const std::string& name, const Overrides& more) {
    return train(seeded_config("gpt2", dir / name, small + still + more));
  };
  const std::vector<double> single =
      losses_of(run("single", {"batch.global_batch_size=1", "batch.micro_batch_size=1",
                               "training.train_iters=40", "training.eval_interval=0"}));
  for (const Layout& layout : {Layout{}, Layout{.data = 2}}) {
    const TrainingSummary grown = run(name_of(layout), growing + overrides_of(layout));
    EXPECT_THAT(batches_of(grown), ElementsAre(2, 2, 2, 4, 6, 8, 8));
    std::size_t next = 0;
    for (const IterationMetrics& m : grown.history) {
      double sum = 0;
      for (std::int64_t i = 0; i < m.batch_size; ++i) sum += single.at(next++);
      EXPECT_NEAR(m.loss, sum / static_cast<double>(m.batch_size), 1e-6) << m.iteration;
      EXPECT_EQ(m.consumed_tokens, static_cast<std::int64_t>(next) * 20);
    }
  }
}

TEST(GrowingBatches, NoLayoutChangesARun) {
  const TempDir dir;
  const auto run = [&](const Layout& layout, const Overrides& more = {}) {
    const std::string name = name_of(layout) + std::to_string(more.size());
    return losses_of(train(seeded_config(
        "gpt2", dir / name,
        growing + overrides_of(layout) + more + Overrides{"model.hidden_dropout=0.1"})));
  };
  const std::vector<double> truth = run({});
  EXPECT_LT(largest_relative_difference(run({.data = 2}, {"zero_optimization.stage=2"}), truth),
            1e-6);
  EXPECT_LT(largest_relative_difference(run({.tensor = 2, .pipeline = 2}), truth), 1e-5);
  // The next iteration begins before the step check of this one.
  const Overrides loose{"gradient_clipping=0", "pipeline.schedule=zbv",
                        "parallel.virtual_pipeline_model_parallel_size=2"};
  EXPECT_LT(largest_relative_difference(run({.pipeline = 2, .chunks = 2}, loose),
                                        run({}, {"gradient_clipping=0"})),
            1e-5);
}

TEST(GrowingBatches, AResumedRunTakesTheBatchSizeOfItsSamples) {
  const TempDir uninterrupted, resumed;
  const Overrides saved = small + growing + Overrides{"checkpoint.save_interval=2"};
  Job(run_config(uninterrupted.path(), saved)).run();
  Job(run_config(resumed.path(),
                 saved + Overrides{"training.train_iters=4", "scheduler.decay_iters=7"}))
      .run();
  std::vector<std::int64_t> sizes;
  TrainerHooks hooks;
  hooks.on_iteration = [&](IterationMetrics& m) { sizes.push_back(m.batch_size); };
  Job(run_config(resumed.path(), saved)).run(hooks);
  EXPECT_THAT(sizes, ElementsAre(6, 8, 8));
  EXPECT_EQ(read_file(resumed / "w/model.safetensors"),
            read_file(uninterrupted / "w/model.safetensors"));
}

TEST(GrowingBatches, EpochsAreAsManyIterationsAsTheirSamplesMake) {
  const TempDir dir;
  const Config config = seeded_config(
      "gpt2", dir / "log",
      small + growing + Overrides{"training.train_iters=null", "training.train_epochs=1"});
  const TrainingInputs inputs = prepare_training(config);
  const std::int64_t samples = inputs.datasets.train->samples_per_epoch();
  const std::int64_t iterations = inputs.config.training.train_iters;
  EXPECT_LE(inputs.begin.batches.first_sample(iterations), samples);
  EXPECT_GT(inputs.begin.batches.first_sample(iterations + 1), samples);
}

TEST(GrowingBatches, ARampThatCannotBeIsRefused) {
  const TempDir dir;
  const auto refused = [&](const Overrides& more) {
    return message_of<RequestError>(
        [&] { prepare_training(seeded_config("gpt2", dir / "log", small + growing + more)); });
  };
  EXPECT_THAT(refused({"batch.rampup_batch_size=[2, 2]"}),
              HasSubstr("/batch/rampup_batch_size: has 2 numbers; use three"));
  EXPECT_THAT(refused({"batch.rampup_batch_size=[8, 2, 9]"}), HasSubstr("start 8 is not below"));
  EXPECT_THAT(refused({"batch.rampup_batch_size=[2, 4, 9]"}), HasSubstr("use one that divides 6"));
  EXPECT_THAT(refused({"batch.rampup_batch_size=[2, 2, 9]", "batch.micro_batch_size=4"}),
              HasSubstr("have to be multiples of 4"));
  EXPECT_THAT(refused({"pipeline.schedule=pipedream_2bw"}), HasSubstr("use one that flushes"));
  // Each batch of the ramp must meet the schedule's constraints.
  EXPECT_THAT(
      refused(overrides_of({.pipeline = 2, .chunks = 2}) +
              Overrides{"model.num_layers=4", "pipeline.schedule=interleaved_1f1b",
                        "batch.rampup_batch_size=[1, 1, 9]"}),
      AllOf(HasSubstr("/batch/rampup_batch_size: batches of 7 sequences, 7 micro-batches: "),
            Not(HasSubstr("micro-batches: config"))));
}

}  // namespace
}  // namespace trident::testing
