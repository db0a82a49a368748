// Which models have a form in GGUF, and why others have none. tests/peers/gguf_peer.py compares the
// files of those that have one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/setup/registry.h"
#include "settings/config.h"

namespace trident::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

GgufForm form_of(const char* model, const std::vector<std::string>& changes) {
  const std::string text = std::string(R"({"model": )") + model +
                           R"(, "data": {"train": [{"path": "tokens.npy"}], "sequence_length": 16},
                              "batch": {"global_batch_size": 1, "micro_batch_size": 1},
                              "training": {"train_iters": 1}})";
  LoadOptions options;
  options.constraints = built_in_constraints();
  const Config config = parse_config(text, changes, options).config;
  return *architecture_of(config)->formats().gguf(config);
}

std::string refusal(const char* model, const std::vector<std::string>& changes) {
  try {
    form_of(model, changes);
    return "";
  } catch (const RequestError& error) {
    return error.what();
  }
}

constexpr auto deepseek = R"({
  "architecture": "deepseek_v3", "num_layers": 3, "hidden_size": 32, "num_attention_heads": 2,
  "ffn_hidden_size": 48, "vocab_size": 100, "max_position_embeddings": 64, "q_lora_rank": 16,
  "norm_epsilon": 1e-6, "kv_lora_rank": 16, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8,
  "moe": {"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 16,
          "shared_expert_intermediate_size": 16, "layer_freq": [0, 1, 1]}})";
constexpr auto gpt_oss = R"({
  "architecture": "gpt_oss", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
  "ffn_hidden_size": 48, "vocab_size": 100, "max_position_embeddings": 64,
  "moe": {"num_experts": 4, "router_topk": 2}})";

TEST(GgufForm, OfDeepseekRefusesSettingsThatLlamaCppLacks) {
  EXPECT_EQ(form_of(deepseek, {}).architecture, "deepseek2");
  const auto refused = [](const std::vector<std::string>& changes) {
    return refusal(deepseek, changes);
  };
  EXPECT_THAT(refused({"model.attention_bias=true"}), HasSubstr("has no attention_bias"));
  EXPECT_THAT(refused({"model.norm_epsilon=1e-5"}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refused({"model.q_lora_rank=0"}), HasSubstr("without a latent"));
  EXPECT_THAT(refused({R"(model.rope_scaling={"rope_type": "linear", "factor": 2})"}),
              HasSubstr("rope_type yarn or default only"));
  EXPECT_THAT(refused({R"(model.rope_scaling={"rope_type": "yarn", "factor": 2})"}),
              HasSubstr("equal mscale and mscale_all_dim"));
  EXPECT_EQ(refused({R"(model.rope_scaling={"rope_type": "yarn", "factor": 2, "mscale": 0.7,
                         "mscale_all_dim": 0.7, "original_max_position_embeddings": 32})"}),
            "");
}

TEST(GgufForm, OfOlmoeHasAHeadOfKeysForEachOfQueries) {
  constexpr auto olmoe = R"({
    "architecture": "olmoe", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "ffn_hidden_size": 48, "vocab_size": 100, "moe": {"num_experts": 4, "router_topk": 2}})";
  EXPECT_EQ(refusal(olmoe, {}), "");
  EXPECT_THAT(refusal(olmoe, {"model.num_query_groups=2"}), HasSubstr("num_query_groups"));
}

TEST(GgufForm, OfGptOssHasItsWindowsAndNotesRoundedBounds) {
  const auto windows = [](const char* layers) {
    return std::vector<std::string>{"model.sliding_window=16",
                                    std::string("model.window_layers=") + layers};
  };
  EXPECT_THAT(form_of(gpt_oss, windows("[0]")).notes, IsEmpty());
  EXPECT_THAT(refusal(gpt_oss, windows("[1]")), HasSubstr("every other layer"));
  EXPECT_EQ(refusal(gpt_oss, {"model.sliding_window=null"}), "");
  EXPECT_EQ(refusal(gpt_oss, {"model.sliding_window=64", "model.window_layers=[1]"}), "");
  auto scaled = windows("[0]");
  scaled.emplace_back(
      R"(model.rope_scaling={"rope_type": "yarn", "factor": 4, "truncate": false,
                             "original_max_position_embeddings": 16})");
  EXPECT_THAT(form_of(gpt_oss, scaled).notes, ElementsAre(HasSubstr("rounds the bounds")));
}

}  // namespace
}  // namespace trident::testing
