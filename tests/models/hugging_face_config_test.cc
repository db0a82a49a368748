// Tests the keys of a Hugging Face config.json: every key is read, is known to change nothing, or
// is refused by its name.
#include "models/hugging_face_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/architecture.h"

namespace trident {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// These configs are as transformers 5 writes them.
const json gpt2 = json::parse(R"({
  "activation_function": "gelu_new", "add_cross_attention": false,
  "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
  "dtype": "float32", "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_inner": null,
  "n_layer": 8, "n_positions": 24, "pad_token_id": null, "reorder_and_upcast_attn": false,
  "resid_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
  "summary_type": "cls_index", "summary_use_proj": true, "tie_word_embeddings": true,
  "transformers_version": "5.23.0", "use_cache": true, "vocab_size": 515})");
const json llama = json::parse(R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "dtype": "bfloat16", "eos_token_id": [2, 3], "head_dim": 6,
  "hidden_act": "silu", "hidden_size": 48, "initializer_range": 0.02, "intermediate_size": 132,
  "max_position_embeddings": 24, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 8, "num_hidden_layers": 8, "num_key_value_heads": 4,
  "pad_token_id": null, "pretraining_tp": 1, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "transformers_version": "5.23.0", "use_cache": true,
  "vocab_size": 515})");

// As transformers 5.24 writes it.
const json qwen2 = json::parse(R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": null,
  "dtype": "float32", "eos_token_id": null, "hidden_act": "silu", "hidden_size": 48,
  "initializer_range": 0.02, "intermediate_size": 132, "layer_types": ["full_attention",
  "full_attention"], "max_position_embeddings": 24, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 8, "num_hidden_layers": 2,
  "num_key_value_heads": 4, "pad_token_id": null, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": null,
  "tie_word_embeddings": false, "transformers_version": "5.24.0", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 515})");

// `base` with these keys set, or removed if the value is "-".
json with(json base, const char* changes) {
  const json changed = json::parse(changes);
  for (const auto& [key, value] : changed.items()) {
    if (value == "-") {
      base.erase(key);
    } else {
      base[key] = value;
    }
  }
  return base;
}

const FamilyFormats& family_of(const json& base) {
  static const ArchitectureSet all = built_in_architectures();
  return all.at(&base == &llama ? "llama" : &base == &qwen2 ? "qwen2" : "gpt2")->formats();
}

json model_of(const json& base, const char* changes) {
  return json::parse(family_of(base).model_config(with(base, changes).dump()));
}

std::vector<std::string> problems_of(const json& base, const char* changes) {
  try {
    model_of(base, changes);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

TEST(HuggingFaceConfig, KeysOfTheModelAreReadWithTransformersDefaults) {
  EXPECT_EQ(model_of(gpt2, "{}"), json::parse(R"({
    "architecture": "gpt2", "num_layers": 8, "hidden_size": 48, "num_attention_heads": 4,
    "ffn_hidden_size": 192, "max_position_embeddings": 24, "vocab_size": 515,
    "norm_epsilon": 1e-5, "tie_word_embeddings": true})"));
  EXPECT_EQ(model_of(llama, "{}"), json::parse(R"({
    "architecture": "llama", "num_layers": 8, "hidden_size": 48, "num_attention_heads": 8,
    "num_query_groups": 4, "ffn_hidden_size": 132, "max_position_embeddings": 24,
    "head_dim": 6, "vocab_size": 515, "norm_epsilon": 1e-6, "rotary_base": 500000.0,
    "rope_scaling": {"rope_type": "default", "factor": 0.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": true,
      "attention_factor": 0.0, "mscale": 0.0, "mscale_all_dim": 0.0},
    "sliding_window": null, "window_layers": null,
    "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false})"));
  EXPECT_EQ(model_of(llama, R"({"rms_norm_eps": "-"})").at("norm_epsilon"), 1e-6);
  EXPECT_EQ(model_of(gpt2, R"({"layer_norm_epsilon": "-"})").at("norm_epsilon"), 1e-5);
  EXPECT_EQ(model_of(llama, R"({"num_key_value_heads": null})").at("num_query_groups"), 8);
  EXPECT_EQ(model_of(llama, R"({"rope_parameters": "-"})").at("rotary_base"), 10000.0);
  EXPECT_EQ(model_of(gpt2, R"({"n_inner": 100})").at("ffn_hidden_size"), 100);
  EXPECT_EQ(model_of(gpt2, R"({"n_layer": "-", "num_hidden_layers": 3})").at("num_layers"), 3);
}

// Each change alters the result of transformers (or would, in a model that has the key).
TEST(HuggingFaceConfig, KeysThatChangeTheResultAreRefusedByName) {
  const std::pair<const char*, const char*> of_gpt2[] = {
      {R"({"activation_function": "gelu"})", "/activation_function: \"gelu\": "},
      {R"({"activation_function": "relu"})", "/activation_function: \"relu\": "},
      {R"({"activation_function": null})", "/activation_function: null: "},
      {R"({"scale_attn_by_inverse_layer_idx": true})", "/scale_attn_by_inverse_layer_idx: true: "},
      {R"({"scale_attn_weights": false})", "/scale_attn_weights: false: "},
      {R"({"add_cross_attention": true})", "/add_cross_attention: true: "},
      {R"({"quantization_config": {"bits": 4}})", "/quantization_config: {\"bits\":4}: "},
      {R"({"is_causal": false})", "/is_causal: false: "},
      {R"({"transformers_weights": "other.safetensors"})", "/transformers_weights: "},
      {R"({"auto_map": {"AutoModel": "own.py"}})", "/auto_map: "},
      {R"({"architectures": ["GPT2ForSequenceClassification"]})", "/architectures: "},
      {R"({"num_hidden_layers": 7})", "/num_hidden_layers: 7: /n_layer says 8"},
      {R"({"model_type": "llama"})", "/model_type: \"llama\": needs \"gpt2\""},
      {R"({"model_type": "-"})", "/model_type: is missing"},
  };
  for (const auto& [changes, problem] : of_gpt2) {
    EXPECT_THAT(problems_of(gpt2, changes), ElementsAre(::testing::StartsWith(problem))) << changes;
  }
  const std::pair<const char*, const char*> of_llama[] = {
      {R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}})",
       "/rope_parameters/factor: is missing: rope_type \"yarn\" needs it"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 0.5}})",
       "/rope_parameters/factor: 0.5: needs a number from 1"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2, "attention_factor": 0}})",
       "/rope_parameters/attention_factor: 0: "},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2, "truncate": null}})",
       "/rope_parameters/truncate: null: "},
      {R"({"rope_parameters": {"rope_type": "linear", "factor": null}})",
       "/rope_parameters/factor: null: "},
      {R"({"rope_parameters": {"rope_type": "linear", "type": "yarn", "factor": 2}})",
       "/rope_parameters/type: \"yarn\": /rope_parameters/rope_type says \"linear\""},
      {R"({"rope_parameters": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 1}})",
       "/rope_parameters/high_freq_factor: is missing: "},
      {R"({"rope_scaling": {"type": "dynamic"}})",
       "/rope_scaling/type: \"dynamic\": not supported; only default, linear, llama3, yarn are"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 500000.0}})",
       "/rope_scaling: {\"factor\":2,\"rope_theta\":500000.0,\"rope_type\":\"linear\"}: replaces"},
      {R"({"rope_scaling": {"rope_type": "default", "low_freq_factor": 1}})",
       "/rope_scaling/low_freq_factor: 1: "},
      {R"({"rope_scaling": "linear"})", "/rope_scaling: \"linear\": needs an object"},
      {R"({"rope_theta": 10000.0})", "/rope_parameters/rope_theta: 500000.0: "},
      {R"({"rope_parameters": "-", "rope_theta": null})", "/rope_theta: null: needs a number"},
      {R"({"rope_parameters": {"rope_type": "linear", "factor": 2}, "rope_theta": null})",
       "/rope_theta: null: needs a number"},
      {R"({"partial_rotary_factor": 0.5})", "/partial_rotary_factor: 0.5: "},
      {R"({"hidden_act": "gelu"})", "/hidden_act: \"gelu\": "},
      {R"({"head_dim": 0})", "/head_dim: 0: "},
      {R"({"attention_bias": 1})", "/attention_bias: 1: "},
      {R"({"mlp_bias": "yes"})", "/mlp_bias: \"yes\": "},
      {R"({"sliding_window": 4096})", "/sliding_window: 4096: "},
      {R"({"layer_types": ["sliding_attention"]})", "/layer_types: "},
      {R"({"attention_chunk_size": 8})", "/attention_chunk_size: 8: "},
      {R"({"quantization_config": {"bits": 4}})", "/quantization_config: {\"bits\":4}: "},
      {R"({"auto_map": {"AutoModel": "own.py"}})", "/auto_map: "},
      {R"({"rope_scaling": {"type": "default"}})",
       "/rope_scaling: {\"type\":\"default\"}: replaces all of rope_parameters, with 10000 "
       "as the base of rotary positions, but rope_parameters has 500000"},
      {R"({"rope_scaling": {"rope_type": "default", "rope_theta": 1e4}})",
       "/rope_scaling: {\"rope_theta\":10000.0,\"rope_type\":\"default\"}: replaces all of"},
      {R"({"pad_token_id": 515})", "/pad_token_id: 515: needs a token of the vocabulary, 0 to 514"},
      {R"({"pad_token_id": -516})", "/pad_token_id: -516: "},
      {R"({"pad_token_id": "<pad>"})", "/pad_token_id: \"<pad>\": "},
      {R"({"model_type": "gpt2"})", "/model_type: \"gpt2\": needs \"llama\""},
  };
  for (const auto& [changes, problem] : of_llama) {
    EXPECT_THAT(problems_of(llama, changes), ElementsAre(::testing::StartsWith(problem)))
        << changes;
  }
}

TEST(HuggingFaceConfig, ValuesWithTheUsualMeaningAreAccepted) {
  for (const char* changes :
       {R"({"activation_function": "gelu_pytorch_tanh"})", R"({"scale_attn_weights": "-"})",
        R"({"reorder_and_upcast_attn": true})", R"({"n_ctx": 24})",
        R"({"quantization_config": null})",
        R"({"task_specific_params": {"text-generation": {"max_length": 50}}})",
        R"({"architectures": ["GPT2Model"]})", R"({"architectures": null})",
        R"({"_name_or_path": "gpt2", "gradient_checkpointing": false, "n_layer": 9})"}) {
    EXPECT_THAT(problems_of(gpt2, changes), IsEmpty()) << changes;
  }
  for (const char* changes :
       {R"({"rope_scaling": null})", R"({"rope_scaling": {}})",
        R"({"rope_scaling": {"type": "default"}, "rope_parameters": "-"})",
        R"({"rope_scaling": {"type": "default"}, "rope_parameters": {"rope_type": "default"}})",
        R"({"rope_scaling": {"rope_type": "default", "rope_theta": 500000.0}})",
        R"({"rope_scaling": {"type": "linear", "factor": 1.0}, "rope_parameters": null})",
        R"({"rope_parameters": null, "rope_theta": 10000})", R"({"hidden_act": "swish"})",
        R"({"head_dim": null})", R"({"pretraining_tp": 2})", R"({"partial_rotary_factor": 1.0})",
        R"({"num_key_value_heads": "-"})"}) {
    EXPECT_THAT(problems_of(llama, changes), IsEmpty()) << changes;
  }
}

TEST(HuggingFaceConfig, BiasesOfLlamaAreThoseOfTheModel) {
  EXPECT_EQ(model_of(llama, R"({"attention_bias": "-"})").at("attention_bias"), false);
  EXPECT_EQ(model_of(llama, R"({"attention_bias": true})").at("attention_bias"), true);
  EXPECT_EQ(model_of(llama, R"({"mlp_bias": true})").at("mlp_bias"), true);
}

TEST(HuggingFaceConfig, Qwen2HasDefaultsAndWindowsOfItsOwn) {
  EXPECT_EQ(model_of(qwen2, "{}"), json::parse(R"({
    "architecture": "qwen2", "num_layers": 2, "hidden_size": 48, "num_attention_heads": 8,
    "num_query_groups": 4, "ffn_hidden_size": 132, "max_position_embeddings": 24,
    "head_dim": 6, "vocab_size": 515, "norm_epsilon": 1e-6, "rotary_base": 10000.0,
    "rope_scaling": {"rope_type": "default", "factor": 0.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": true,
      "attention_factor": 0.0, "mscale": 0.0, "mscale_all_dim": 0.0},
    "sliding_window": null, "window_layers": null,
    "tie_word_embeddings": false})"));
  // transformers' default is 32, null the number of query heads (Qwen2Config, 5.24).
  EXPECT_EQ(model_of(qwen2, R"({"num_key_value_heads": "-"})").at("num_query_groups"), 32);
  EXPECT_EQ(model_of(qwen2, R"({"num_key_value_heads": null})").at("num_query_groups"), 8);
  EXPECT_EQ(model_of(qwen2, R"({"head_dim": 8})").at("head_dim"), 8);
  // A window that isn't switched on has no effect.
  for (const char* changes :
       {R"({"sliding_window": 8})", R"({"layer_types": null})",
        R"({"sliding_window": 0, "max_window_layers": 1})", R"({"use_sliding_window": true})",
        R"({"sliding_window": "-", "use_sliding_window": "-"})"}) {
    EXPECT_EQ(model_of(qwen2, changes), model_of(qwen2, "{}")) << changes;
  }
  const std::pair<const char*, const char*> refused[] = {
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "/layer_types: "},
      {R"({"layer_types": "full_attention"})", "/layer_types: "},
      {R"({"layer_types": ["full_attention"]})", "/layer_types: "},
      {R"({"layer_types": ["full_attention", "chunked_attention"]})", "/layer_types: "},
      {R"({"use_sliding_window": null})", "/use_sliding_window: null: "},
      {R"({"sliding_window": "x"})", "/sliding_window: \"x\": "},
      {R"({"max_window_layers": null})", "/max_window_layers: null: "},
      {R"({"head_dim": null})", "/head_dim: null: "},
      {R"({"model_type": "llama"})", "/model_type: \"llama\": needs \"qwen2\""}};
  for (const auto& [changes, problem] : refused) {
    EXPECT_THAT(problems_of(qwen2, changes), ElementsAre(::testing::StartsWith(problem)))
        << changes;
  }
}

// transformers 5.24: max_window_layers says from where, layer_types says which.
TEST(HuggingFaceConfig, Qwen2SlidesInTheLayersThatItNames) {
  const auto layers = [](const char* changes) {
    const json model = model_of(qwen2, changes);
    return std::pair(model.value("sliding_window", json()), model.value("window_layers", json()));
  };
  using Pair = std::pair<json, json>;
  EXPECT_EQ(layers(R"({"use_sliding_window": true, "sliding_window": 9, "layer_types": null,
                       "max_window_layers": 1})"),
            Pair(9, {1}));
  EXPECT_EQ(layers(R"({"use_sliding_window": true, "sliding_window": "-", "layer_types": null,
                       "max_window_layers": 0})"),
            Pair(4096, {0, 1}));
  // 28 layers have none by default.
  EXPECT_EQ(layers(R"({"use_sliding_window": true, "sliding_window": 9, "layer_types": "-",
                       "max_window_layers": "-"})"),
            Pair(json(), json()));
  EXPECT_EQ(layers(R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1,
                       "layer_types": ["sliding_attention", "full_attention"]})"),
            Pair(9, json::array({0})));
}

TEST(HuggingFaceConfig, MistralSlidesInAllLayersUnlessItSaysNull) {
  const auto window = [](const char* value) {
    const json keys =
        with(with(llama, R"({"model_type": "mistral", "architectures": null})"), value);
    const auto family = built_in_architectures().at("mistral");
    const json model = json::parse(family->formats().model_config(keys.dump()));
    json read = model.at("sliding_window");
    EXPECT_EQ(model.at("window_layers").size(), read.is_null() ? 0u : 8u);
    return read;
  };
  EXPECT_EQ(window("{}"), 4096);
  EXPECT_EQ(window(R"({"sliding_window": 7})"), 7);
  EXPECT_EQ(window(R"({"sliding_window": null})"), json());
  EXPECT_THROW(window(R"({"sliding_window": 0})"), RequestError);
}

TEST(HuggingFaceConfig, Qwen3HasHeadsOf128UnlessItSaysSo) {
  const auto of = [](const char* changes) {
    const json keys =
        with(with(qwen2, R"({"model_type": "qwen3", "architectures": null})"), changes);
    return json::parse(built_in_architectures().at("qwen3")->formats().model_config(keys.dump()));
  };
  EXPECT_EQ(of("{}").at("head_dim"), 128);
  EXPECT_EQ(of(R"({"head_dim": 24})").at("head_dim"), 24);
  EXPECT_EQ(of("{}").at("attention_bias"), false);
  EXPECT_EQ(of(R"({"attention_bias": true})").at("attention_bias"), true);
  EXPECT_THROW(of(R"({"head_dim": null})"), RequestError);
}

// The keys of DeepSeek's own config.json, with small sizes.
TEST(HuggingFaceConfig, DeepSeekV3IsReadAsPublished) {
  const json published = json::parse(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config",
                 "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
    "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
    "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 96, "kv_lora_rank": 16,
    "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 12,
    "moe_layer_freq": 1, "n_group": 2, "n_routed_experts": 8, "n_shared_experts": 2,
    "norm_topk_prob": true, "num_attention_heads": 4, "num_experts_per_tok": 3,
    "num_hidden_layers": 3, "num_key_value_heads": 4, "num_nextn_predict_layers": 1,
    "pretraining_tp": 1, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1,
    "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.33.1",
    "use_cache": true, "v_head_dim": 6, "vocab_size": 256})");
  const auto family = built_in_architectures().at("deepseek_v3");
  const auto of = [&](const char* changes) {
    return json::parse(family->formats().model_config(with(published, changes).dump()));
  };
  const auto refused = [&](const char* changes, const char* text) {
    try {
      of(changes);
      ADD_FAILURE() << changes;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.problems(), ElementsAre(::testing::HasSubstr(text))) << changes;
    }
  };
  const json model = of("{}");
  EXPECT_EQ(model.at("kv_lora_rank"), 16);
  EXPECT_EQ(model.at("q_lora_rank"), 24);
  EXPECT_EQ(model.at("head_dim"), 4);
  EXPECT_EQ(model.at("moe").at("layer_freq"), json({0, 1, 1}));
  EXPECT_EQ(model.at("moe").at("shared_expert_intermediate_size"), 24);
  EXPECT_EQ(model.at("moe").at("router_load_balancing_type"), "none");
  EXPECT_EQ(of(R"({"q_lora_rank": null})").at("q_lora_rank"), 0);
  EXPECT_EQ(of(R"({"norm_topk_prob": "-"})").at("moe").at("norm_topk_prob"), true);
  refused(R"({"quantization_config": {"quant_method": "fp8"}})", "convert the folder to bf16");
  refused(R"({"auto_map": {"AutoConfig": "mine.Config"}})", "only DeepSeek's own code is known");
  refused(R"({"rope_interleave": false})", "/rope_interleave: false");
  refused(R"({"n_group": null})", "/n_group: null: transformers fails with this");
  refused(R"({"num_key_value_heads": 2})", "as many as num_attention_heads (4)");
  refused(R"({"first_k_dense_replace": 3})", "it leaves none of 3 layers experts");
  refused(R"({"first_k_dense_replace": "x"})", "/first_k_dense_replace: \"x\"");
  refused(R"({"num_nextn_predict_layers": "x"})", "/num_nextn_predict_layers: \"x\"");
  EXPECT_EQ(of(R"({"norm_topk_prob": null})").at("moe").at("norm_topk_prob"), false);
  EXPECT_EQ(of(R"({"num_local_experts": 4})").at("moe").at("num_experts"), 4);

  const auto further = [&](const char* changes) {
    return family->formats().further_layers(with(published, changes).dump());
  };
  EXPECT_EQ(further("{}"), 1);
  EXPECT_EQ(further(R"({"num_nextn_predict_layers": 0})"), 0);
  EXPECT_EQ(further(R"({"num_nextn_predict_layers": 9000000000000000000})"), 64);
  EXPECT_EQ(further(R"({"num_nextn_predict_layers": "-"})"), 1);
}

// The keys of allenai/OLMoE-1B-7B-0924, with small sizes.
TEST(HuggingFaceConfig, OlmoeIsReadAsPublished) {
  const json published = json::parse(R"({
    "architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "clip_qkv": null, "eos_token_id": 9, "hidden_act": "silu", "hidden_size": 32,
    "initializer_range": 0.02, "intermediate_size": 24, "max_position_embeddings": 64,
    "model_type": "olmoe", "norm_topk_prob": false, "num_attention_heads": 4, "num_experts": 8,
    "num_experts_per_tok": 3, "num_hidden_layers": 2, "num_key_value_heads": 4,
    "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.0",
    "use_cache": true, "vocab_size": 64})");
  const auto family = built_in_architectures().at("olmoe");
  const auto of = [&](const char* changes) {
    return json::parse(family->formats().model_config(with(published, changes).dump()));
  };
  EXPECT_EQ(of("{}").at("moe").at("layer_freq"), json({1, 1}));
  EXPECT_EQ(of("{}").at("moe").at("ffn_hidden_size"), 24);
  EXPECT_EQ(of(R"({"pad_token_id": "-"})").at("pad_token_id"), 1);
  EXPECT_FALSE(of(R"({"pad_token_id": null})").contains("pad_token_id"));
  EXPECT_EQ(of(R"({"router_aux_loss_coef": "-", "output_router_logits": true})")
                .at("moe")
                .at("aux_loss_coeff"),
            0.01);
  EXPECT_EQ(of(R"({"num_local_experts": 4})").at("moe").at("num_experts"), 4);
  for (const char* refused : {R"({"clip_qkv": 8.0})", R"({"head_dim": null})", R"({"head_dim": 4})",
                              R"({"num_experts": "-"})"}) {
    EXPECT_THROW(of(refused), RequestError) << refused;
  }
}

TEST(HuggingFaceConfig, ScalingsOfRotaryPositionsAreRead) {
  const auto scaling = [](const char* changes) {
    json read = model_of(llama, changes).at("rope_scaling");
    const json usual = model_of(llama, "{}").at("rope_scaling");
    for (const auto& [key, value] : usual.items()) {
      if (read.at(key) == value) read.erase(key);
    }
    return read;
  };
  EXPECT_EQ(scaling(R"({"rope_parameters": {"type": "linear", "factor": 4}})"),
            json::parse(R"({"rope_type": "linear", "factor": 4})"));
  EXPECT_EQ(
      scaling(R"({"rope_parameters": "-", "rope_scaling": {"rope_type": "llama3",
                        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 16}})"),
      json::parse(
          R"({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16})"));
  // The key at the top level comes before the one inside, which comes before the positions.
  const auto original = [&](const char* changes) {
    return scaling(changes).at("original_max_position_embeddings");
  };
  EXPECT_EQ(original(R"({"rope_parameters": {"rope_type": "yarn", "factor": 2}})"), 24);
  EXPECT_EQ(original(R"({"original_max_position_embeddings": 5, "rope_parameters":
              {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 6}})"),
            5);
  // A factor of null is the quotient of the positions.
  EXPECT_EQ(scaling(R"({"rope_parameters": {"rope_type": "yarn", "factor": null, "beta_fast": null,
                        "original_max_position_embeddings": 12}})"),
            json::parse(R"({"rope_type": "yarn", "factor": 2.0,
                            "original_max_position_embeddings": 12})"));
}

TEST(HuggingFaceConfig, SizesAreWholeNumbersAboveZero) {
  for (const char* value : {"0", "-1", "-9223372036854775808", "18446744073709551615", "1e300",
                            "4.0", "\"4\"", "null", "true", "[4]", "{}"}) {
    const json changed = {{"n_head", json::parse(value)}};
    EXPECT_THAT(problems_of(gpt2, changed.dump().c_str()),
                ElementsAre(::testing::StartsWith(std::string("/n_head: ") +
                                                  json::parse(value).dump() + ": needs a whole")));
    const json other = {{"num_attention_heads", json::parse(value)}};
    EXPECT_THAT(problems_of(llama, other.dump().c_str()), ::testing::Not(IsEmpty())) << value;
  }
  EXPECT_THAT(problems_of(gpt2, R"({"n_head": "-"})"),
              ElementsAre("/n_head: is missing: needs a whole number from 1 to 1000000000"));
  EXPECT_THAT(problems_of(gpt2, R"({"layer_norm_epsilon": -1})"), ::testing::SizeIs(1));
  EXPECT_THAT(problems_of(llama, R"({"rms_norm_eps": "1e-6"})"), ::testing::SizeIs(1));
  EXPECT_THAT(problems_of(llama, R"({"tie_word_embeddings": 1})"), ::testing::SizeIs(1));
}

TEST(HuggingFaceConfig, AllProblemsComeAtOnce) {
  EXPECT_THAT(problems_of(gpt2, R"({"scale_attn_weights": "\u001b[31m", "n_layer": 0})"),
              ElementsAre("/scale_attn_weights: \"\\u001b[31m\": not supported; only true is",
                          "/n_layer: 0: needs a whole number from 1 to 1000000000"));
}

// Keys that are unknown to transformers' classes change nothing there. They are kept and named.
TEST(HuggingFaceConfig, KeysThatTransformersDoesNotKnowAreKeptAndNamed) {
  const char* strange = R"({"_model_name_or_path": "x", "unk_token_id": 0, "is_llama_config": true,
    "rope_interleaved": true, "transformers.js_config": {"dtype": "q4"}, "pruned_heads": {"0": [1]},
    "trainer": {"lr": [1, 2]}, "logit_scale": 2})";
  for (const json& base : {gpt2, llama}) {
    const FamilyFormats& family = family_of(base.at("model_type") == "gpt2" ? gpt2 : llama);
    const std::string text = with(base, strange).dump();
    EXPECT_EQ(family.model_config(text), family.model_config(base.dump()));
    EXPECT_THAT(family.unread_keys(text),
                ::testing::UnorderedElementsAre(
                    "_model_name_or_path", "unk_token_id", "is_llama_config", "rope_interleaved",
                    "transformers.js_config", "pruned_heads", "trainer", "logit_scale"));
    for (const bool conversion : {false, true}) {
      const json kept = json::parse(family.kept_config(text, conversion));
      const json all = json::parse(strange);
      for (const auto& [key, value] : all.items()) {
        EXPECT_EQ(kept.at(key), value) << key;
      }
    }
    EXPECT_THAT(family.unread_keys(base.dump()), IsEmpty());
  }
}

TEST(HuggingFaceConfig, APaddingTokenIsOfTheModelWhereItFreezesARow) {
  EXPECT_EQ(model_of(llama, R"({"pad_token_id": 7})").at("pad_token_id"), 7);
  // A negative index counts from the end, as in torch.nn.Embedding.
  EXPECT_EQ(model_of(llama, R"({"pad_token_id": -1})").at("pad_token_id"), 514);
  EXPECT_FALSE(model_of(llama, "{}").contains("pad_token_id"));
  EXPECT_FALSE(model_of(gpt2, R"({"pad_token_id": 7})").contains("pad_token_id"));
}

TEST(HuggingFaceConfig, TextThatIsNoConfigIsRefused) {
  const FamilyFormats& family = family_of(gpt2);
  for (const char* text : {"", "[]", "4", "null", "{", R"({"n_head": 1, "n_head": 2})", "{} {}"}) {
    EXPECT_THROW(family.model_config(text), RequestError) << text;
  }
  EXPECT_THROW(family.model_config(std::string(100000, '[')), RequestError);
}

TEST(HuggingFaceConfig, KeysOfTheWeightsAreKeptAndThoseOfTheFileAreNot) {
  const std::string text =
      with(gpt2, R"({"eos_token_id": [0, 2], "_name_or_path": "x", "resid_pdrop": 0.3})").dump();
  const json run = json::parse(family_of(gpt2).kept_config(text, false));
  EXPECT_EQ(run.at("eos_token_id"), json({0, 2}));
  EXPECT_EQ(run.at("bos_token_id"), 50256);
  EXPECT_TRUE(run.contains("pad_token_id"));
  EXPECT_FALSE(run.contains("resid_pdrop")) << "a run has its own dropout";
  EXPECT_FALSE(run.contains("n_layer"));
  const json conversion = json::parse(family_of(gpt2).kept_config(text, true));
  EXPECT_EQ(conversion.at("resid_pdrop"), 0.3);
  EXPECT_EQ(conversion.at("summary_type"), "cls_index");
  EXPECT_FALSE(conversion.contains("_name_or_path"));
  EXPECT_FALSE(conversion.contains("transformers_version"));
}

}  // namespace
}  // namespace trident
