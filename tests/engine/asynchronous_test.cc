// Compares PipeDream and PipeDream-2BW with a serial program without a pipeline.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/setup/from_config.h"
#include "formats/hugging_face/safetensors.h"
#include "scheduler/iterations.h"
#include "scheduler/lower.h"
#include "scheduler/schedules.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/engine/serial_program.h"

namespace trident::testing {
namespace {

// Runs the config through a Stepper, as a trainer does.
Trajectory pipelined(const Config& config) {
  Trajectory outcome;
  std::mutex mutex;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    const auto m = config.num_microbatches();
    for (int k = 0; k < iterations; ++k) {
      auto batches = synthetic_batches(own.model, k);
      for (int i = 0; i < own.stepper.look_ahead(); ++i) {
        batches.push_back(
            synthetic_batches(own.model, k + 1 + i / m)[static_cast<std::size_t>(i % m)]);
      }
      const Advance steps = own.stepper.advance(
          batches, {.learning_rate = rate, .close = k % 2 == 1 || k + 1 == iterations});
      EXPECT_EQ(steps.current.has_value(),
                k % 2 == 1 || k + 1 == iterations || !own.stepper.updates_unchecked());
      own.evaluator.mean_loss(
          synthetic_batches(own.model, 1000));  // must not disturb the micro-batches in flight
      for (const auto& step : {steps.previous, steps.current}) {
        if (!step || own.model.topology().world.rank() != 0) continue;
        outcome.losses.push_back(step->loss);
        outcome.norms.push_back(step->grad_norm);
      }
    }
    const std::lock_guard lock(mutex);
    if (own.model.topology().of(Group::shard).rank() != 0) return;
    const int rank = own.model.topology().of(Group::tensor).rank();
    const std::string place = rank == 0 ? "" : fmt::format(" of tensor rank {}", rank);
    for (const Bucket& bucket : own.model.buckets().buckets()) {
      for (const BucketEntry& entry : bucket.layout.entries) {
        if (entry.parameter->spec().placement.copy) continue;
        outcome.weights[entry.parameter->name() + place] =
            host(own.model.context(), entry.parameter->weight());
      }
    }
  });
  return outcome;
}

struct Case {
  const char* model;
  int data, pipeline, microbatches, zero;
  const char* clipping = "0";
};

void compare(const std::string& schedule, const Case& c) {
  SCOPED_TRACE(fmt::format("{} {} dp {} pp {} m {} zero {}", schedule, c.model, c.data, c.pipeline,
                           c.microbatches, c.zero));
  const TempDir dir;
  const bool each = schedule == "pipedream";
  const Overrides shared{"model.num_layers=4",
                         "model.hidden_dropout=0.1",
                         "model.tie_word_embeddings=" + std::string(each ? "false" : "true"),
                         "batch.micro_batch_size=1",
                         "batch.global_batch_size=" + std::to_string(c.data * c.microbatches),
                         "gradient_clipping=" + std::string(c.clipping),
                         "runtime.threads_per_rank=1",
                         "scheduler={\"type\": \"constant\"}",
                         "training.train_iters=" + std::to_string(iterations),
                         "zero_optimization.stage=" + std::to_string(c.zero)};
  const Config parallel = seeded_config(
      c.model, dir.path(),
      shared + overrides_of({c.data, 1, c.pipeline}) + Overrides{"pipeline.schedule=" + schedule});
  const Config alone =
      seeded_config(c.model, dir.path(),
                    shared + overrides_of({c.data, 1, 1}) + Overrides{"zero_optimization.stage=0"});
  const Trajectory found = pipelined(parallel);
  const Trajectory wanted = serial(alone, parallel.pipeline.layer_split, each);
  EXPECT_EQ(found.losses, wanted.losses);
  if (c.zero == 0) {
    EXPECT_EQ(found.norms, wanted.norms);
  }
  EXPECT_EQ(found.weights.size(), wanted.weights.size());
  EXPECT_TRUE(found.weights == wanted.weights) << "weights differ";
  // The delay is real: without it the weights are different.
  if (c.pipeline > 1) {
    const Trajectory prompt = each ? serial(alone, {4}, true) : pipelined(alone);
    EXPECT_TRUE(prompt.weights != wanted.weights);
  }
}

TEST(Asynchronous, PipeDreamGivesTheBitsOfTheSerialProgram) {
  for (const Case& c : {Case{"llama", 1, 2, 4, 0},
                        {"llama", 1, 4, 4, 0},
                        {"llama", 1, 4, 2, 0},
                        {"gpt2", 1, 4, 1, 0},
                        {"gpt2", 2, 2, 3, 0},
                        {"llama", 2, 3, 3, 1}}) {
    compare("pipedream", c);
  }
}

TEST(Asynchronous, PipeDream2bwGivesTheBitsOfTheSerialProgram) {
  // Without clipping the step check comes late; with clipping it comes at the end of each
  // iteration.
  for (const Case& c : {Case{"gpt2", 1, 2, 4, 0, "0.5"},
                        {"gpt2", 1, 4, 4, 0, "0.5"},
                        {"gpt2", 1, 4, 4, 0},
                        {"llama", 1, 3, 5, 0},
                        {"gpt2", 2, 2, 3, 1},
                        {"gpt2", 2, 2, 3, 1, "0.5"}}) {
    compare("pipedream_2bw", c);
  }
}

// Gradients are reduced once a step or for each micro-batch, which is the default of ZeRO stage 2.
TEST(Asynchronous, ZeroAndTensorParallelismWorkWithBothKinds) {
  for (const std::string schedule : {"pipedream", "pipedream_2bw"}) {
    for (const char* each : {"false", "true"}) {
      SCOPED_TRACE(schedule + " reduce_each_micro_batch " + each);
      const TempDir dir;
      const auto train = [&](int stage, int tensor) {
        Overrides sequence{"parallel.sequence_parallel=true"};
        if (tensor == 1) sequence.clear();
        return pipelined(seeded_config(
            schedule == "pipedream" ? "llama" : "gpt2", dir.path(),
            overrides_of({2, tensor, 2}) + sequence +
                Overrides{"model.hidden_dropout=0.1", "runtime.threads_per_rank=1",
                          "gradient_clipping=" + std::string(schedule == "pipedream" ? "0" : "0.5"),
                          "batch.micro_batch_size=1", "batch.global_batch_size=6",
                          "scheduler={\"type\": \"constant\"}",
                          "training.train_iters=" + std::to_string(iterations),
                          "pipeline.schedule=" + schedule,
                          "zero_optimization.stage=" + std::to_string(stage),
                          "zero_optimization.reduce_each_micro_batch=" + std::string(each)}));
      };
      const Trajectory plain = train(0, 2), sharded = train(2, 2);
      EXPECT_EQ(sharded.losses, plain.losses);
      EXPECT_TRUE(sharded.weights == plain.weights) << "weights differ";
      EXPECT_EQ(sharded.norms, plain.norms);
      // Sums over tensor ranks are added in another order, a small difference. Weight versions that
      // are too old or too new differ by more.
      const Trajectory unsharded = train(2, 1);
      EXPECT_LT(largest_relative_difference(plain.losses, unsharded.losses), 1e-6);
    }
  }
}

TEST(Asynchronous, EvaluationAndSavedWeightsNameTheirVersion) {
  for (const std::string schedule : {"pipedream", "pipedream_2bw"}) {
    SCOPED_TRACE(schedule);
    const TempDir dir;
    const Config config = seeded_config(
        "llama", dir.path(),
        overrides_of({1, 1, 3}) + Overrides{"pipeline.schedule=" + schedule, "gradient_clipping=0",
                                            "training.train_iters=4", "training.eval_interval=2",
                                            "scheduler={\"type\": \"constant\"}",
                                            "batch.micro_batch_size=2",
                                            "checkpoint.save=" + (dir / "weights")});
    const std::int64_t m = schedule == "pipedream" ? config.num_microbatches() : 1;
    const TrainingSummary summary = train(config);
    ASSERT_EQ(summary.history.size(), 4U);
    for (const IterationMetrics& metrics : summary.history) {
      EXPECT_EQ(metrics.weight_version, metrics.iteration * m);
      EXPECT_GT(metrics.bubble_predicted, 0);
    }
    const SafetensorsFile file(dir / "weights/model.safetensors");
    EXPECT_EQ(file.metadata().at("weight_version"), std::to_string(4 * m));
  }
}

// An iteration of few micro-batches is not a pipeline of its own: the metrics must not show idle
// time for ranks that are never idle.
TEST(Asynchronous, BubbleOfShortIterationsIsThatOfTheRun) {
  const TempDir dir;
  const Config config =
      seeded_config("llama", dir.path(),
                    overrides_of({1, 1, 2}) +
                        Overrides{"pipeline.schedule=pipedream", "gradient_clipping=0",
                                  "scheduler={\"type\": \"constant\"}", "training.train_iters=12",
                                  "batch.micro_batch_size=1", "batch.global_batch_size=1"});
  const TrainingSummary summary = train(config);
  const IterationMetrics& last = summary.history.back();
  EXPECT_GT(last.bubble_predicted, 0);
  EXPECT_LT(last.bubble_predicted, 0.3);
  ASSERT_EQ(last.rank_bubble_ratio.size(), 2U);
  for (const double rank : last.rank_bubble_ratio) EXPECT_LT(rank, 0.5);
}

// The first two iterations use the initial weights, so the overflow of a huge rate comes in the
// third. Later batches still find the versions that they should use.
TEST(Asynchronous, AStepLeftOutIsAVersionWithoutAChange) {
  const TempDir dir;
  const auto weights_after = [&](int steps, int stages) {
    const Config config = seeded_config(
        "gpt2", dir / "run",
        overrides_of({1, 1, stages}) +
            Overrides{"pipeline.schedule=pipedream_2bw", "training.on_non_finite=skip",
                      "training.train_iters=" + std::to_string(steps),
                      "scheduler={\"type\": \"constant\"}", "optimizer.params.lr=1e30",
                      "optimizer.params.weight_decay=0",  // decay would overflow the weights
                      "batch.micro_batch_size=2", "logging.overwrite=true",
                      "checkpoint.save=" + (dir / "weights")});
    const TrainingSummary summary = train(config);
    EXPECT_EQ(std::ssize(summary.history), steps);
    for (const IterationMetrics& m : summary.history) {
      EXPECT_EQ(m.skipped, m.iteration > 2);
      EXPECT_EQ(m.weight_version, m.iteration);
    }
    const SafetensorsFile file(dir / "weights/model.safetensors");
    std::map<std::string, std::vector<float>> weights;
    for (const SafetensorsEntry& entry : file.tensors()) {
      auto& values = weights[entry.name];
      values.resize(entry.bytes() / sizeof(float));
      file.read(entry, std::as_writable_bytes(std::span(values)));
    }
    return weights;
  };
  const auto two = weights_after(2, 1);
  EXPECT_TRUE(weights_after(6, 1) == two);
  EXPECT_TRUE(weights_after(6, 3) == two);
}

// Consecutive windows of a run, joined, are the run.
TEST(Asynchronous, IterationsAreThePartsOfOneLongList) {
  for (const int p : {1, 2, 3, 5}) {
    for (const int m : {1, 2, 4, 7}) {
      for (const int count : {1, 2, 3, 5, 9, 12}) {
        SCOPED_TRACE(fmt::format("p {} m {} iterations {}", p, m, count));
        const IterationLists lists(pipedream(p, m), count);
        const Schedule run = one_f_one_b(p, m * count);
        const auto lowered = lower(run);
        for (int rank = 0; rank < p; ++rank) {
          std::vector<Action> actions;
          std::vector<LoweredAction> steps;
          for (int k = 0; k < count; ++k) {
            const auto& [schedule, parts] = lists.of(k);
            int updates = 0;
            for (Action a : schedule.ranks[static_cast<std::size_t>(rank)]) {
              updates += a.kind == Kind::backward;
              a.microbatch += k * m;
              actions.push_back(a);
            }
            EXPECT_EQ(updates, m) << "every stage has the same updates at the end of " << k;
            for (LoweredAction a : parts[static_cast<std::size_t>(rank)]) {
              a.microbatch += k * m;
              steps.push_back(a);
            }
          }
          EXPECT_TRUE(actions == run.ranks[static_cast<std::size_t>(rank)]);
          EXPECT_TRUE(steps == lowered[static_cast<std::size_t>(rank)]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trident::testing
