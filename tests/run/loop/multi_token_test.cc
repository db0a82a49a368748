// Layers of deepseek_v3 that predict further tokens: no layout changes a bit of them, they train
// the model only as much as asked, and files and checkpoints hold them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "engine/setup/model_costs.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/safetensors.h"
#include "planner/plan/planned_rank.h"
#include "report/metrics_file.h"
#include "run/evaluation/convert.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/run/loop/layout_variations.h"

namespace trident::testing {
namespace {

const Overrides deepseek{
    "model.architecture=deepseek_v3",
    "model.num_query_groups=8",
    "model.kv_lora_rank=12",
    "model.qk_head_dim=6",
    "model.qk_pos_emb_head_dim=4",
    "model.v_head_dim=5",
    "training.train_iters=4",
    "scheduler.warmup_iters=0",
    "batch.global_batch_size=12",
    "batch.micro_batch_size=1",
    R"(model.moe={"num_experts": 8, "router_topk": 2, "ffn_hidden_size": 36, "aux_loss_coeff": 0.02,
                  "shared_expert_intermediate_size": 36, "layer_freq": [0, 1, 1, 1],
                  "router_bias_update_rate": 0.0625})"};
const Overrides two_layers{"model.mtp_num_layers=2", "model.mtp_loss_scaling_factor=0.5"};
const Overrides tied{"model.tie_word_embeddings=true", "batch.micro_batch_size=2",
                     "batch.global_batch_size=16"};

Overrides experts(int ranks) {
  return {"parallel.expert_model_parallel_size=" + std::to_string(ranks)};
}

Outcome run_of(const Layout& layout, const Overrides& overrides) {
  return outcome("llama", layout, deepseek + overrides);
}

Config config_of(const std::string& dir, const Overrides& overrides) {
  return seeded_config("llama", dir + "/log",
                       deepseek + overrides + Overrides{"checkpoint.save=" + dir + "/w"});
}

// Within 1e-3, and equal biases, which may be 0.
void expect_near(std::map<std::string, HostTensor> a, std::map<std::string, HostTensor> b) {
  std::erase_if(b, [&](const auto& tensor) {
    const auto& [name, values] = tensor;
    if (!name.ends_with("e_score_correction_bias")) return false;
    EXPECT_EQ(a.at(name).values, values.values) << name;
    a.erase(name);
    return true;
  });
  EXPECT_LT(largest_relative_distance(a, b), 1e-3);
}

// The embedding is used on the first and the last stage; where it is tied, by the head as well.
TEST(MultiToken, PipelineScheduleAndZeroChangeNoBit) {
  std::vector<LayoutVariation> variations = layout_variations;
  variations.push_back({"1f1b", {2, 1, 2}, {}});
  variations.push_back(
      {"zbv", {2, 1, 2, 2}, {"pipeline.schedule=zbv", "zero_optimization.stage=1"}});
  for (const Overrides& tables : {Overrides{}, tied}) {
    const Overrides base = two_layers + tables + experts(2);
    const Outcome plain = run_of({2, 1, 1}, base);
    for (const LayoutVariation& v : variations) {
      SCOPED_TRACE(v.name + std::string(tables.empty() ? "" : ", tied"));
      expect_same_bits(run_of(v.layout, base + v.overrides), plain);
    }
    const Overrides each{"zero_optimization.reduce_each_micro_batch=true"};
    expect_same_bits(run_of({2, 1, 2}, base + each), run_of({2, 1, 1}, base + each));
  }
}

// Every layer with experts routes its tokens once more for backward.
TEST(MultiToken, AreRecomputedWithTheOtherLayers) {
  const TempDir dir;
  const auto routes = [&](const char* granularity) {
    const Config config = config_of(
        dir.path(),
        two_layers + Overrides{std::string("activation_checkpointing.granularity=") + granularity});
    const TracedStep step =
        RankPlanner(config, *architecture_of(config), schedule_of(config)).trace(0);
    return std::ranges::count(step.trace.operations(), "route", &TracedOperation::name);
  };
  EXPECT_GT(routes("none"), 0);
  EXPECT_EQ(routes("full"), 2 * routes("none"));
  // The model's FLOPs, by which MFU counts, stay.
  const auto flops = [&](const char* granularity) {
    const Config config = config_of(
        dir.path(),
        two_layers + Overrides{std::string("activation_checkpointing.granularity=") + granularity});
    return flops_per_step(config, *architecture_of(config));
  };
  EXPECT_EQ(flops("full"), flops("none"));
}

TEST(MultiToken, TensorAndExpertRanksFollowOneRank) {
  for (const Overrides& tables : {Overrides{}, tied}) {
    const Outcome one = run_of({1, 1, 1}, two_layers + tables);
    struct Folded {
      Layout layout;
      int expert;
      bool sequence_parallel;
    };
    for (const Folded& f :
         {Folded{{2, 2, 1}, 2, false}, Folded{{2, 2, 1}, 4, true}, Folded{{1, 2, 2}, 1, true}}) {
      SCOPED_TRACE(name_of(f.layout) + (f.sequence_parallel ? " sp" : ""));
      const Outcome folded =
          run_of(f.layout, two_layers + tables + experts(f.expert) +
                               Overrides{"parallel.expert_tensor_parallel_size=1"} +
                               Overrides{std::string("parallel.sequence_parallel=") +
                                         (f.sequence_parallel ? "true" : "false")});
      EXPECT_LT(largest_relative_difference(folded.losses, one.losses), 1e-5);
      expect_near(folded.tensors, one.tensors);
    }
  }
}

// Their loss is an auxiliary one. With the factor 0 they change nothing of the model; with another
// they do.
TEST(MultiToken, TrainTheModelByTheirFactor) {
  const auto lines = [&](const TempDir& dir, const Overrides& overrides) {
    // A loss of their experts would train the model, too.
    train(
        config_of(dir.path(), overrides + Overrides{"model.moe.router_load_balancing_type=none"}));
    return read_metrics(dir / "log/metrics.jsonl");
  };
  const TempDir without, zero, half;
  const auto plain = lines(without, {});
  const auto idle =
      lines(zero, Overrides{"model.mtp_num_layers=1", "model.mtp_loss_scaling_factor=0"});
  const auto trained =
      lines(half, Overrides{"model.mtp_num_layers=1", "model.mtp_loss_scaling_factor=0.5"});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(idle[i]["loss"], plain[i]["loss"]);
    EXPECT_EQ(idle[i]["auxiliary_losses"]["mtp_loss"], 0.0);
    EXPECT_FALSE(plain[i].contains("auxiliary_losses"));
  }
  EXPECT_NE(trained.back()["loss"], plain.back()["loss"]);
  // A model that knows nothing: the logarithm of its 515 tokens at 19 of 20 positions.
  EXPECT_NEAR(trained.front()["auxiliary_losses"]["mtp_loss"].get<double>(),
              0.5 * 19 / 20 * std::log(515.0), 0.05);
  EXPECT_LT(trained.back()["auxiliary_losses"]["mtp_loss"],
            trained.front()["auxiliary_losses"]["mtp_loss"]);
}

TEST(MultiToken, ARunResumesInAnotherLayout) {
  const TempDir uninterrupted, parts;
  train(config_of(uninterrupted.path(), two_layers));
  std::atomic<bool> stop{false};
  TrainerHooks hooks;
  hooks.stop = &stop;
  hooks.on_iteration = [&](const IterationMetrics& m) { stop = m.iteration == 2; };
  train(config_of(parts.path(), two_layers), usual_device(), hooks);
  // The factor may change, but that changes the rest of the run.
  EXPECT_NO_THROW(prepare_training(
      config_of(parts.path(), two_layers + Overrides{"model.mtp_loss_scaling_factor=0.1"})));
  train(config_of(parts.path(), two_layers + overrides_of({1, 1, 2})));
  EXPECT_EQ(read_metrics(parts / "log/metrics.jsonl").size(), 4U);
  EXPECT_TRUE(read_file(parts / "w/model.safetensors") ==
              read_file(uninterrupted / "w/model.safetensors"));
}

// Each stage of pipedream updates by itself, so the first and the last can't share a table.
TEST(MultiToken, ResumeUnderAnAsynchronousSchedule) {
  const Overrides asynchronous = two_layers + overrides_of({1, 1, 2}) +
                                 Overrides{"training.train_iters=6", "gradient_clipping=0"};
  const Overrides two_buffered = asynchronous + Overrides{"pipeline.schedule=pipedream_2bw"};
  const TempDir uninterrupted, parts;
  train(config_of(uninterrupted.path(), two_buffered));
  std::atomic<bool> stop{false};
  TrainerHooks hooks;
  hooks.stop = &stop;
  hooks.on_iteration = [&](const IterationMetrics& m) { stop = m.iteration == 3; };
  train(config_of(parts.path(), two_buffered), usual_device(), hooks);
  train(config_of(parts.path(), two_buffered));
  EXPECT_EQ(read_metrics(parts / "log/metrics.jsonl").size(), 6U);
  EXPECT_TRUE(read_file(parts / "w/model.safetensors") ==
              read_file(uninterrupted / "w/model.safetensors"));
  EXPECT_THAT(
      [&] {
        config_of(uninterrupted.path(), asynchronous + Overrides{"pipeline.schedule=pipedream"});
      },
      ::testing::ThrowsMessage<RequestError>(
          ::testing::HasSubstr("/model/mtp_num_layers: these layers use the embedding")));
}

// A folder names the layers as DeepSeek's release does, with the tables repeated.
TEST(MultiToken, FoldersHoldThem) {
  const TempDir dir;
  train(config_of(dir.path(), two_layers));
  const std::string folder = dir / "w";
  const auto bytes = [](const std::string& from, const std::string& name) {
    const SafetensorsSet set(from);
    std::vector<std::byte> read(set.at(name).bytes());
    set.read(name, read);
    return read;
  };
  for (const char* layer : {"model.layers.4.", "model.layers.5."}) {
    EXPECT_EQ(bytes(folder, std::string(layer) + "embed_tokens.weight"),
              bytes(folder, "model.embed_tokens.weight"));
    EXPECT_EQ(bytes(folder, std::string(layer) + "shared_head.head.weight"),
              bytes(folder, "lm_head.weight"));
    for (const char* own : {"enorm.weight", "hnorm.weight", "eh_proj.weight",
                            "shared_head.norm.weight", "mlp.experts.7.up_proj.weight",
                            "mlp.gate.e_score_correction_bias", "self_attn.o_proj.weight"}) {
      EXPECT_FALSE(bytes(folder, std::string(layer) + own).empty());
    }
  }
  // A conversion keeps them. Their copies of the tables must be the tables.
  convert_weights(built_in_architectures(), folder, dir / "copy", false);
  const std::string weights = read_file(folder + "/model.safetensors");
  EXPECT_TRUE(read_file(dir / "copy/model.safetensors") == weights);
  const std::vector<std::byte> table = bytes(folder, "lm_head.weight");
  const std::string pattern(reinterpret_cast<const char*>(table.data()), table.size());
  const std::size_t first = weights.find(pattern), second = weights.find(pattern, first + 1);
  ASSERT_NE(second, std::string::npos);
  std::string other = weights;
  other[second + 7] ^= 1;
  write_file_atomic(dir / "copy/model.safetensors", other);
  EXPECT_THAT([&] { convert_weights(built_in_architectures(), dir / "copy", dir / "no", false); },
              ::testing::ThrowsMessage<RequestError>(::testing::HasSubstr(
                  "the layers that predict further tokens share the model's tables")));
  // A model with fewer of them leaves out the rest.
  const auto further = [&](int layers) {
    const TempDir next;
    train(config_of(next.path(), Overrides{"checkpoint.load=" + folder,
                                           "model.mtp_num_layers=" + std::to_string(layers)}));
    return read_metrics(next / "log/metrics.jsonl").front();
  };
  const auto all = further(2), one = further(1), none = further(0);
  EXPECT_EQ(all["loss"], none["loss"]);
  EXPECT_EQ(one["loss"], none["loss"]);
  EXPECT_GT(one["auxiliary_losses"]["mtp_loss"], 0.0);
  EXPECT_THAT([&] { further(3); }, ::testing::ThrowsMessage<RequestError>(::testing::HasSubstr(
                                       "tensor model.layers.6.enorm.weight is missing")));
}

}  // namespace
}  // namespace trident::testing
