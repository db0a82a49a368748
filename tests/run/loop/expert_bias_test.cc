// The biases that balance the experts of deepseek_v3, whose attention is latent: no layout changes
// a bit of them, and only applied steps move them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/files/file.h"
#include "formats/hugging_face/safetensors.h"
#include "report/metrics_file.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/run/loop/layout_variations.h"

namespace trident::testing {
namespace {

constexpr float rate = 0.0625f;
const Overrides deepseek{
    "model.architecture=deepseek_v3",
    "model.num_query_groups=8",
    "model.kv_lora_rank=12",
    "model.q_lora_rank=10",
    "model.qk_head_dim=6",
    "model.qk_pos_emb_head_dim=4",
    "model.v_head_dim=5",
    "training.train_iters=4",
    "scheduler.warmup_iters=0",
    "batch.global_batch_size=12",
    "batch.micro_batch_size=1",
    R"(model.moe={"num_experts": 8, "router_topk": 2, "ffn_hidden_size": 36, "aux_loss_coeff": 0.02,
                  "shared_expert_intermediate_size": 36, "layer_freq": [0, 1, 1, 1],
                  "router_num_groups": 4, "router_group_topk": 2,
                  "router_bias_update_rate": 0.0625})"};

Overrides expert_parallel(int expert, int tensor = 1) {
  return {"parallel.expert_model_parallel_size=" + std::to_string(expert),
          "parallel.expert_tensor_parallel_size=" + std::to_string(tensor)};
}

Outcome run_of(const Layout& layout, const Overrides& overrides) {
  return outcome("llama", layout, deepseek + overrides);
}

// The biases of a layer in a folder of weights.
std::vector<float> biases(const std::string& folder, int layer) {
  const std::string name =
      "model.layers." + std::to_string(layer) + ".mlp.gate.e_score_correction_bias";
  const SafetensorsSet set(folder);
  EXPECT_EQ(set.at(name).dtype, DType::f32);
  const std::string router = "model.layers." + std::to_string(layer) + ".mlp.gate.weight";
  EXPECT_EQ(set.at(router).dtype, DType::f32);
  std::vector<float> values(8);
  set.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

// Every step of these runs is clipped, so an optimistic update is undone and made again.
TEST(ExpertBiases, PipelineScheduleAndZeroChangeNoBit) {
  const Outcome plain = run_of({2, 1, 1}, expert_parallel(2));
  for (const LayoutVariation& v : layout_variations) {
    SCOPED_TRACE(v.name);
    expect_same_bits(run_of(v.layout, expert_parallel(2) + v.overrides), plain);
  }
}

// After one step each bias is the sign of mean − count, of the counts that the run reports.
TEST(ExpertBiases, MoveByTheCountsOfTheGlobalBatch) {
  struct Folded {
    Layout layout;
    int expert, tensor;
    Overrides overrides;
  };
  for (const Folded& f :
       {Folded{{1, 1, 1}, 1, 1, {}}, Folded{{2, 2, 1}, 4, 1, {"parallel.sequence_parallel=true"}},
        Folded{{2, 2, 1}, 2, 2, {}}, Folded{{3, 1, 2}, 1, 1, {"precision.dtype=bf16"}},
        // DeepSeek's own scaling of positions and of scores, gradients of 16 bits.
        Folded{{2, 1, 1},
               2,
               1,
               {"precision.dtype=bf16", "precision.grad_accum_dtype=bf16",
                R"(model.rope_scaling={"rope_type": "yarn", "factor": 4, "mscale": 1,
                                       "mscale_all_dim": 1})"}},
        Folded{{2, 1, 1}, 2, 1, {"training.eval_interval=1", "training.eval_iters=1"}},
        Folded{{2, 1, 1}, 1, 1, {"activation_checkpointing.granularity=full"}}}) {
    SCOPED_TRACE(name_of(f.layout) + " ep " + std::to_string(f.expert));
    const TempDir dir;
    const Config config = seeded_config(
        "llama", dir / "log",
        deepseek + overrides_of(f.layout) + expert_parallel(f.expert, f.tensor) + f.overrides +
            Overrides{"training.train_iters=1", "checkpoint.save=" + (dir / "w")});
    train(config);
    const auto line = read_metrics(dir / "log/metrics.jsonl").front();
    for (int layer = 1; layer < 4; ++layer) {
      const auto counts = line["statistics"]["tokens_per_expert"][static_cast<std::size_t>(layer)];
      double total = 0;
      for (const double count : counts) total += count;
      std::vector<float> want;
      for (const double count : counts) {
        const double above = total / 8 - count;
        want.push_back(above > 0 ? rate : above < 0 ? -rate : 0);
      }
      EXPECT_EQ(biases(dir / "w", layer), want) << "layer " << layer;
    }
  }
}

// A step that isn't applied moves no bias.
TEST(ExpertBiases, SkippedStepsDoNotCount) {
  const TempDir dir;
  const Config config = seeded_config(
      "llama", dir / "log",
      deepseek + Overrides{"training.train_iters=2", "precision.dtype=fp16",
                           "precision.loss_scale=0", "precision.initial_scale_power=40",
                           "training.on_non_finite=skip", "checkpoint.save=" + (dir / "w")});
  train(config);
  for (const auto& line : read_metrics(dir / "log/metrics.jsonl")) {
    ASSERT_TRUE(line["skipped"]) << line;
  }
  EXPECT_THAT(biases(dir / "w", 2), ::testing::Each(0.0f));
}

// A resumed run takes the biases of the micro-batches in flight, too.
TEST(ExpertBiases, AsynchronousSchedulesResumeWithTheSameBits) {
  for (const char* schedule : {"pipedream_2bw", "pipedream"}) {
    SCOPED_TRACE(schedule);
    const auto config = [&](const TempDir& dir) {
      return seeded_config(
          "llama", dir / "log",
          deepseek + overrides_of({1, 1, 2}) +
              Overrides{std::string("pipeline.schedule=") + schedule, "gradient_clipping=0",
                        "checkpoint.save=" + (dir / "w"), "training.train_iters=6"});
    };
    const TempDir uninterrupted, parts;
    train(config(uninterrupted));
    std::atomic<bool> stop{false};
    TrainerHooks hooks;
    hooks.stop = &stop;
    hooks.on_iteration = [&](const IterationMetrics& m) { stop = m.iteration == 3; };
    train(config(parts), usual_device(), hooks);
    train(config(parts));
    EXPECT_EQ(read_metrics(parts / "log/metrics.jsonl").size(), 6U);
    EXPECT_TRUE(read_file(parts / "w/model.safetensors") ==
                read_file(uninterrupted / "w/model.safetensors"));
    EXPECT_THAT(biases(uninterrupted / "w", 3), ::testing::Contains(::testing::Ne(0.0f)));
  }
}

}  // namespace
}  // namespace trident::testing
