// ZeRO stages 0 to 3, reductions once a step or for each micro-batch, and recomputation. They
// change where and when memory is used, and no bit of losses and weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/setup/from_config.h"
#include "kernels/elementwise.h"
#include "support/covering.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

Overrides stage(int stage, bool each) {
  return {"zero_optimization.stage=" + std::to_string(stage),
          std::string("zero_optimization.reduce_each_micro_batch=") + (each ? "true" : "false")};
}

const Overrides all_in_shards{"zero_optimization.stage3_param_persistence_threshold=0"};
const Overrides vectors_replicated{"zero_optimization.stage3_param_persistence_threshold=200"};
const Overrides small_buckets{"zero_optimization.reduce_bucket_size=3000",
                              "zero_optimization.allgather_bucket_size=5000"};
const Overrides full{"activation_checkpointing.granularity=full"};

// The unsharded outcomes for the comparisons; each is computed once.
class Plain {
 public:
  explicit Plain(std::string model) : model_(std::move(model)) {}
  const Outcome& of(const Layout& layout, const Overrides& overrides) {
    std::string key = name_of(layout);
    for (const std::string& override : overrides) key += " " + override;
    auto place = made_.find(key);
    if (place == made_.end()) {
      place = made_.emplace(key, outcome(model_.c_str(), layout, overrides)).first;
    }
    return place->second;
  }

 private:
  std::string model_;
  std::map<std::string, Outcome> made_;
};

TEST(Zero, StagesReductionsAndPipelinesAreBitwiseIdentical) {
  Plain plain("gpt2");
  for (const Combination& c : combinations({3, 2, 2, 3, 3})) {
    const int data = 2 + static_cast<int>(c[0]), tensor = 1 + static_cast<int>(c[1]),
              z = 1 + static_cast<int>(c[4]);
    const bool each = c[2] == 1;
    const Layout layout = std::vector{Layout{data, tensor, 1}, Layout{data, tensor, 2},
                                      Layout{data, tensor, 2, 2}}[c[3]];
    SCOPED_TRACE(name_of(layout) + " stage " + std::to_string(z) +
                 (each ? ", each micro-batch" : ", once"));
    // The other settings vary with the combination.
    Overrides more = stage(z, each);
    if (z == 3) more = more + (data == 3 ? vectors_replicated : all_in_shards);
    if (z == 2 && tensor == 2) more = more + small_buckets;
    if (layout.pipeline == 2 && z != 1) more = more + full;
    expect_same_bits(outcome("gpt2", layout, more), plain.of({data, tensor, 1}, stage(0, each)));
  }
}

// Sums over buckets, such as Adafactor's means, are over the same buckets in every stage.
TEST(Zero, BucketsHaveTheSameSizeInEveryStage) {
  const TempDir dir;
  const Overrides sizes{"zero_optimization.reduce_bucket_size=5000",
                        "zero_optimization.allgather_bucket_size=3000"};
  for (const int z : {0, 1, 2, 3}) {
    const Config config = seeded_config("gpt2", dir.path(), sizes + stage(z, false));
    EXPECT_EQ(bucket_limits(config.zero_optimization, config.parallel).elements, 3000) << z;
  }
}

TEST(Zero, ReducingEachMicroBatchAddsInAnotherOrder) {
  const Layout layout{2, 1, 1};
  const Outcome once = outcome("gpt2", layout, stage(0, false));
  const Outcome each = outcome("gpt2", layout, stage(0, true));
  EXPECT_NE(each.losses, once.losses);
  EXPECT_LT(largest_relative_difference(each.losses, once.losses), 1e-5);
  // With a single micro-batch the two settings are the same.
  const Overrides one{"batch.global_batch_size=8", "batch.micro_batch_size=4"};
  expect_same_bits(outcome("gpt2", layout, one + stage(2, true)),
                   outcome("gpt2", layout, one + stage(0, false)));
}

TEST(Zero, EveryFlushScheduleTakesEveryStage) {
  const std::vector<const char*> kinds{
      "naive", "gpipe", "zb_h1", "zb_h2", "interleaved_zero_bubble", "zbv", "dualpipev"};
  Plain plain("gpt2");
  for (const Combination& c : combinations({kinds.size(), 2, 2})) {
    const bool chunks = c[0] >= 4, each = c[2] == 1;
    const int z = 2 + static_cast<int>(c[1]);
    SCOPED_TRACE(std::string(kinds[c[0]]) + " " + std::to_string(z) + (each ? " each" : " once"));
    const Overrides schedule{std::string("pipeline.schedule=") + kinds[c[0]]};
    expect_same_bits(outcome("gpt2", chunks ? Layout{2, 1, 2, 2} : Layout{2, 1, 3},
                             schedule + stage(z, each) + all_in_shards +
                                 (chunks && z == 3 ? full : Overrides{})),
                     plain.of({2, 1, 1}, stage(0, each)));
  }
}

// A row-parallel layer computes its bias gradient from the rank's own rows, together with its
// weight gradient.
TEST(Zero, DelayedWeightGradientsChangeNoBitUnderSequenceParallelism) {
  const Overrides sequence{"parallel.sequence_parallel=true"};
  for (const bool each : {false, true}) {
    const Outcome plain = outcome("gpt2", {2, 2, 1}, sequence + stage(0, each));
    for (const char* kind : {"zb_h1", "zb_h2"}) {
      SCOPED_TRACE(std::string(kind) + (each ? " each" : " once"));
      expect_same_bits(
          outcome("gpt2", {2, 2, 2},
                  sequence + stage(2, each) + Overrides{std::string("pipeline.schedule=") + kind}),
          plain);
    }
  }
}

TEST(Zero, LlamaIsBitwiseIdenticalUnderSequenceParallelism) {
  const Overrides sequence{"parallel.sequence_parallel=true"};
  const std::vector<const char*> granularities{"none", "selective", "full"};
  Plain plain("llama");
  for (const Combination& c : combinations({2, 3, granularities.size()})) {
    const bool each = c[0] == 1;
    const int z = 1 + static_cast<int>(c[1]);
    SCOPED_TRACE(std::to_string(z) + " " + granularities[c[2]] + (each ? " each" : " once"));
    const Overrides recompute{std::string("activation_checkpointing.granularity=") +
                              granularities[c[2]]};
    expect_same_bits(outcome("llama", {2, 2, 2, z == 2 ? 2 : 1},
                             sequence + stage(z, each) + all_in_shards + recompute),
                     plain.of({2, 2, 1}, sequence + stage(0, each)));
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

TEST(Zero, Fp16SkipsTheSameStepsInEveryStage) {
  // 2^24 overflows at first; with a window of 4 the scale rises to it again and falls again.
  const Overrides fp16{"precision.dtype=fp16", "precision.initial_scale_power=24",
                       "precision.loss_scale_window=4", "precision.hysteresis=1"};
  const auto run = [&](const Layout& layout, const Overrides& overrides) {
    const TempDir dir;
    const Config config = seeded_config("gpt2", dir.path(),
                                        stirred + fp16 + overrides_of(layout) + overrides +
                                            Overrides{"checkpoint.save=" + (dir / "weights")});
    std::vector<double> figures;
    int skipped = 0;
    for (const IterationMetrics& m : train(config).history) {
      figures.insert(figures.end(), {m.loss, m.loss_scale, m.skipped ? 1.0 : 0.0});
      skipped += m.skipped ? 1 : 0;
      if (!m.skipped) figures.push_back(m.grad_norm);
    }
    EXPECT_GE(skipped, 3);
    EXPECT_LE(skipped, 12);
    return std::pair(figures, slurp(dir / "weights/model.safetensors"));
  };
  const auto expect_same = [](const auto& a, const auto& b) {
    EXPECT_EQ(a.first, b.first);
    EXPECT_GT(a.second.size(), 100'000U);
    EXPECT_TRUE(a.second == b.second) << "saved weights differ";
  };
  // The gradients' type, the time of their reduction, the stage and the schedule vary. Under zb_h2,
  // post-validation rolls back an overflowing update and the weights that were gathered ahead.
  struct Variant {
    int stage;
    bool post_validation;
  };
  const std::vector<Variant> variants{{1, false}, {2, false}, {3, false}, {2, true}, {3, true}};
  std::map<std::string, decltype(run({2, 2, 1}, {}))> plain;
  for (const Combination& c : combinations({2, 2, variants.size()})) {
    const std::string dtype = c[0] == 1 ? "fp16" : "fp32";
    const bool each = c[1] == 1;
    const Variant variant = variants[c[2]];
    SCOPED_TRACE(dtype + (each ? " each " : " once ") + std::to_string(variant.stage) +
                 (variant.post_validation ? " zb_h2" : ""));
    Overrides common{"precision.grad_accum_dtype=" + dtype};
    if (variant.post_validation) common = common + Overrides{"gradient_clipping=0"};
    const std::string key =
        dtype + (each ? " each" : " once") + (variant.post_validation ? " free" : "");
    if (plain.count(key) == 0) plain[key] = run({2, 2, 1}, common + stage(0, each));
    expect_same(
        run({2, 2, 2}, common + stage(variant.stage, each) + all_in_shards +
                           (variant.post_validation ? Overrides{"pipeline.schedule=zb_h2"} : full)),
        plain[key]);
  }
}

TEST(Zero, GradientsOf16BitsAgreeAcrossStagesAndStayNear) {
  const Overrides bf16{"precision.dtype=bf16"};
  const Overrides both = bf16 + Overrides{"precision.grad_accum_dtype=bf16"};
  const Outcome fp32_gradients = outcome("gpt2", {2, 2, 1}, bf16);
  const Outcome plain = outcome("gpt2", {2, 2, 1}, both);
  EXPECT_NE(plain.losses, fp32_gradients.losses);
  EXPECT_LT(largest_relative_difference(plain.losses, fp32_gradients.losses), 1e-2);
  for (const int z : {1, 2, 3}) {
    expect_same_bits(outcome("gpt2", {2, 2, 2}, both + stage(z, false) + all_in_shards), plain);
  }
}

TEST(Zero, EveryOptimizerAgreesAcrossStagesAndLayouts) {
  for (const char* type : {"Adam", "SGD", "Adafactor"}) {
    const Overrides optimizer{std::string("optimizer.type=") + type, "optimizer.params.betas=null",
                              "optimizer.params.eps=null", "optimizer.params.weight_decay=0.1"};
    const Outcome alone = outcome("gpt2", {1, 1, 1}, optimizer);
    const Outcome plain = outcome("gpt2", {2, 2, 1}, optimizer + stage(0, false));
    EXPECT_LT(largest_relative_difference(plain.losses, alone.losses), 1e-5) << type;
    for (const int z : {1, 2, 3}) {
      SCOPED_TRACE(std::string(type) + " " + std::to_string(z));
      expect_same_bits(outcome("gpt2", {2, 2, 2, z == 2 ? 2 : 1}, optimizer + stage(z, false)),
                       plain);
    }
    const Outcome three = outcome("gpt2", {3, 1, 1}, optimizer + small_buckets + all_in_shards);
    EXPECT_LT(largest_relative_difference(three.losses, alone.losses), 1e-5) << type;
    expect_same_bits(outcome("gpt2", {3, 1, 2},
                             optimizer + small_buckets + all_in_shards + stage(3, false) +
                                 Overrides{"pipeline.schedule=zb_h2"}),
                     three);
  }
}

TEST(Zero, ANonFiniteGradientOfOneRankSkipsTheStepOnAll) {
  const TempDir dir;
  for (const Combination& c : combinations({2, 4, 2})) {
    const std::string dtype = c[0] == 1 ? "fp16" : "fp32";
    const int z = static_cast<int>(c[1]);
    const bool each = c[2] == 1;
    SCOPED_TRACE(dtype + " " + std::to_string(z) + (each ? " each" : " once"));
    const Config config =
        seeded_config("gpt2", dir.path(),
                      overrides_of({2, 2, 2}) + stage(z, each) + all_in_shards +
                          Overrides{"precision.dtype=" + dtype, "training.on_non_finite=skip"});
    std::vector<StepResult> results(8);
    on_ranks(config, transport_options(config), [&](Rank& own) {
      Context& context = own.model.context();
      const int rank = own.model.topology().world.rank();
      if (rank == 5) {
        // A large parameter; in stage 3 every data rank holds a shard of it.
        const auto parameters = own.model.chunks().front().modules.front()->parameters();
        const Parameter& parameter = **std::max_element(
            parameters.begin(), parameters.end(), [](const auto& a, const auto& b) {
              return a->spec().placement.numel() < b->spec().placement.numel();
            });
        const Tensor values =
            context.empty(parameter.spec().placement.local(), DType::f32, Category::workspace);
        fill(context, values, NAN);
        own.model.buckets().set(context, parameter, values);
      }
      results[static_cast<std::size_t>(rank)] =
          own.stepper.train(synthetic_batches(own.model, 0), 1e-3);
    });
    for (const StepResult& result : results) {
      EXPECT_FALSE(result.applied);
      EXPECT_TRUE(std::isnan(result.grad_norm));
      EXPECT_FALSE(result.only_overflowed);  // the loss isn't finite either, whatever the scale
    }
  }
}

TEST(Zero, AllowsMoreRanksThanATinyParameterHasElements) {
  const Overrides untied{"model.tie_word_embeddings=false", "batch.global_batch_size=16"};
  const Outcome plain = outcome("gpt2", {8, 1, 1}, untied + stage(0, true));
  for (const int z : {1, 2, 3}) {
    SCOPED_TRACE(z);
    if (z % 2 == 1 || tests_are_full()) {
      expect_same_bits(outcome("gpt2", {8, 1, 1},
                               untied + stage(z, true) + all_in_shards +
                                   Overrides{"zero_optimization.reduce_bucket_size=1"}),
                       plain);
    }
    if (z % 2 == 0 || tests_are_full()) {
      expect_same_bits(outcome("gpt2", {8, 1, 2},
                               untied + stage(z, true) +
                                   Overrides{"zero_optimization.overlap_comm=false",
                                             "zero_optimization.stage3_prefetch_bucket_size=0"}),
                       plain);
    }
  }
}

}  // namespace
}  // namespace trident::testing
