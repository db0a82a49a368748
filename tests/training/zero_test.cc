// ZeRO stages 0 to 3, reductions once a step or each micro-batch, and recomputation: they change
// where memory lies and when, and no bit of losses and weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

struct Outcome {
  std::vector<double> losses;
  std::string weights;  // bytes of the saved model.safetensors
};

// Every step is clipped; dropout makes recomputation repeat its masks. 20 steps.
const Overrides stirred{"model.hidden_dropout=0.1", "model.attention_dropout=0.1",
                        "gradient_clipping=0.5", "runtime.threads_per_rank=1"};

Outcome outcome(const std::string& model, const Layout& layout, const Overrides& overrides) {
  const TempDir dir;
  const Config config = seeded_config(model, dir.path(),
                                      stirred + Overrides{"checkpoint.save=" + (dir / "weights")} +
                                          overrides_of(layout) + overrides);
  const TrainingSummary summary = train(config);
  return {losses_of(summary), slurp(dir / "weights/model.safetensors")};
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses.size(), 20U);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_GT(a.weights.size(), 100'000U);
  EXPECT_TRUE(a.weights == b.weights) << "saved weights differ";
}

Overrides stage(int stage, bool each) {
  return {"zero_optimization.stage=" + std::to_string(stage),
          std::string("zero_optimization.reduce_each_micro_batch=") + (each ? "true" : "false")};
}

const Overrides all_in_shards{"zero_optimization.stage3_param_persistence_threshold=0"};
const Overrides vectors_whole{"zero_optimization.stage3_param_persistence_threshold=200"};
const Overrides small_buckets{"zero_optimization.reduce_bucket_size=3000",
                              "zero_optimization.allgather_bucket_size=5000"};
const Overrides full{"activation_checkpointing.granularity=full"};

TEST(Zero, StagesReductionsAndPipelinesAgreeToTheBit) {
  for (const int data : {2, 3, 4}) {
    for (const int tensor : {1, 2}) {
      for (const bool each : {false, true}) {
        const Outcome plain = outcome("gpt2", {data, tensor, 1}, stage(0, each));
        for (const Layout layout :
             {Layout{data, tensor, 1}, Layout{data, tensor, 2}, Layout{data, tensor, 2, 2}}) {
          for (const int z : {1, 2, 3}) {
            SCOPED_TRACE(name_of(layout) + " stage " + std::to_string(z) +
                         (each ? ", each micro-batch" : ", once"));
            // What else may vary goes round.
            Overrides more = stage(z, each);
            if (z == 3) more = more + (data == 3 ? vectors_whole : all_in_shards);
            if (z == 2 && tensor == 2) more = more + small_buckets;
            if (layout.pipeline == 2 && z != 1) more = more + full;
            expect_same_bits(outcome("gpt2", layout, more), plain);
          }
        }
      }
    }
  }
}

TEST(Zero, ReducingEachMicroBatchAddsInAnotherOrder) {
  const Layout layout{2, 1, 1};
  const Outcome once = outcome("gpt2", layout, stage(0, false));
  const Outcome each = outcome("gpt2", layout, stage(0, true));
  EXPECT_NE(each.losses, once.losses);
  EXPECT_LT(largest_relative_difference(each.losses, once.losses), 1e-5);
  // With a single micro-batch there is nothing to choose.
  const Overrides one{"batch.global_batch_size=8", "batch.micro_batch_size=4"};
  expect_same_bits(outcome("gpt2", layout, one + stage(2, true)),
                   outcome("gpt2", layout, one + stage(0, false)));
}

TEST(Zero, EveryFlushScheduleTakesEveryStage) {
  for (const bool each : {false, true}) {
    const Outcome plain = outcome("gpt2", {2, 1, 1}, stage(0, each));
    for (const char* kind : {"naive", "gpipe", "zb_h1", "zb_h2"}) {
      for (const int z : {2, 3}) {
        SCOPED_TRACE(std::string(kind) + " " + std::to_string(z));
        const Overrides schedule{std::string("pipeline.schedule=") + kind};
        expect_same_bits(outcome("gpt2", {2, 1, 3}, schedule + stage(z, each) + all_in_shards),
                         plain);
      }
    }
    for (const char* kind : {"interleaved_zero_bubble", "zbv", "dualpipev"}) {
      for (const int z : {2, 3}) {
        SCOPED_TRACE(std::string(kind) + " " + std::to_string(z));
        const Overrides schedule{std::string("pipeline.schedule=") + kind};
        expect_same_bits(
            outcome("gpt2", {2, 1, 2, 2},
                    schedule + stage(z, each) + all_in_shards + (z == 3 ? full : Overrides{})),
            plain);
      }
    }
  }
}

TEST(Zero, LlamaUnderSequenceParallelism) {
  const Overrides sequence{"parallel.sequence_parallel=true"};
  for (const bool each : {false, true}) {
    const Outcome plain = outcome("llama", {2, 2, 1}, sequence + stage(0, each));
    for (const int z : {1, 2, 3}) {
      for (const char* granularity : {"none", "selective", "full"}) {
        SCOPED_TRACE(std::to_string(z) + " " + granularity);
        const Overrides recompute{std::string("activation_checkpointing.granularity=") +
                                  granularity};
        expect_same_bits(outcome("llama", {2, 2, 2, z == 2 ? 2 : 1},
                                 sequence + stage(z, each) + all_in_shards + recompute),
                         plain);
      }
    }
  }
}

TEST(Zero, RecomputationChangesNoBit) {
  const Outcome plain = outcome("gpt2", {1, 2, 1}, {});
  for (const Layout layout : {Layout{1, 2, 1}, Layout{1, 2, 2}}) {
    for (const char* layers : {"1", "2", "3", "9"}) {
      SCOPED_TRACE(layers);
      const Overrides units{std::string("activation_checkpointing.num_layers=") + layers};
      expect_same_bits(outcome("gpt2", layout, full + units), plain);
    }
    expect_same_bits(outcome("gpt2", layout, {"activation_checkpointing.granularity=selective"}),
                     plain);
  }
}

TEST(Zero, Bf16AgreesAcrossStages) {
  const Overrides bf16{"precision.dtype=bf16"};
  for (const bool each : {false, true}) {
    const Outcome plain = outcome("gpt2", {2, 2, 1}, bf16 + stage(0, each));
    for (const int z : {1, 2, 3}) {
      SCOPED_TRACE(z);
      expect_same_bits(outcome("gpt2", {2, 2, 2}, bf16 + stage(z, each) + all_in_shards + full),
                       plain);
    }
  }
}

TEST(Zero, UntiedTablesAndMoreRanksThanATinyParameterHasElements) {
  const Overrides untied{"model.tie_word_embeddings=false", "batch.global_batch_size=16"};
  const Outcome plain = outcome("gpt2", {8, 1, 1}, untied + stage(0, true));
  for (const int z : {1, 2, 3}) {
    SCOPED_TRACE(z);
    expect_same_bits(outcome("gpt2", {8, 1, 1},
                             untied + stage(z, true) + all_in_shards +
                                 Overrides{"zero_optimization.reduce_bucket_size=1"}),
                     plain);
    expect_same_bits(outcome("gpt2", {8, 1, 2},
                             untied + stage(z, true) +
                                 Overrides{"zero_optimization.overlap_comm=false",
                                           "zero_optimization.stage3_prefetch_bucket_size=0"}),
                     plain);
  }
}

}  // namespace
}  // namespace trident::testing
