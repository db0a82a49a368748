// The files of Qwen's mixtures of experts, as transformers' Qwen2MoeForCausalLM and
// Qwen3MoeForCausalLM store them: Qwen 2's and 3's, with a router and matrices of each expert in
// place of the MLP in some layers, and in Qwen 2's a gated expert that all tokens take. OLMoE's,
// of OlmoeForCausalLM, have the same names.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/files/json.h"
#include "models/expert_formats.h"
#include "models/llama_formats.h"
#include "models/qwen_formats.h"

namespace trident {
namespace {

using Use = HuggingFaceUse;

// The keys that transformers' Qwen3MoeConfig, 4.51 to 5.24, has beside Llama's.
constexpr HuggingFaceKey qwen3_moe_keys[] = {
    {"attention_bias", Use::model},
    {"use_sliding_window", Use::model},
    {"sliding_window", Use::model},
    // Qwen 3's keys, which this class doesn't read.
    {"max_window_layers", Use::weights},
    {"decoder_sparse_step", Use::model},
    {"mlp_only_layers", Use::model},
    {"moe_intermediate_size", Use::model},
    {"num_experts_per_tok", Use::model},
    {"num_experts", Use::model},
    {"num_local_experts", Use::model},
    {"norm_topk_prob", Use::model},
    {"router_aux_loss_coef", Use::training},
    {"output_router_logits", Use::training},
};

// Those of Qwen2MoeConfig, 4.40 to 5.24.
constexpr HuggingFaceKey qwen2_moe_keys[] = {
    {"qkv_bias", Use::fixed, "[true]"},
    {"use_sliding_window", Use::model},
    {"sliding_window", Use::model},
    {"max_window_layers", Use::model},
    {"layer_types", Use::model},
    {"decoder_sparse_step", Use::model},
    {"mlp_only_layers", Use::model},
    {"moe_intermediate_size", Use::model},
    {"shared_expert_intermediate_size", Use::model},
    {"num_experts_per_tok", Use::model},
    {"num_experts", Use::model},
    {"norm_topk_prob", Use::model},
    {"router_aux_loss_coef", Use::training},
    {"output_router_logits", Use::training},
};

// Those of OlmoeConfig, 4.45 to 5.24.
constexpr HuggingFaceKey olmoe_keys[] = {
    {"attention_bias", Use::model},          {"clip_qkv", Use::fixed, "[null]"},
    {"num_experts_per_tok", Use::model},     {"num_experts", Use::model},
    {"num_local_experts", Use::model},       {"norm_topk_prob", Use::model},
    {"router_aux_loss_coef", Use::training}, {"output_router_logits", Use::training},
};

constexpr std::string_view qwen2_moe_classes[] = {"Qwen2MoeForCausalLM", "Qwen2MoeModel"};
constexpr std::string_view olmoe_classes[] = {"OlmoeForCausalLM", "OlmoeModel"};
constexpr std::string_view qwen3_moe_classes[] = {"Qwen3MoeForCausalLM", "Qwen3MoeModel"};

const std::vector<StoredTensor>& qwen_moe_tensors() {
  static const std::vector<StoredTensor> tensors =
      with_mlp_expert_tensors({{.ours = "layers.*.mlp.shared.up.weight",
                                .hugging_face = "model.layers.*.mlp.shared_expert.gate_proj.weight",
                                .gguf = "blk.*.ffn_gate_shexp.weight",
                                .rows = StoredRows::shared_gate},
                               {.ours = "layers.*.mlp.shared.up.weight",
                                .hugging_face = "model.layers.*.mlp.shared_expert.up_proj.weight",
                                .gguf = "blk.*.ffn_up_shexp.weight",
                                .rows = StoredRows::shared_up},
                               {.ours = "layers.*.mlp.shared.down.weight",
                                .hugging_face = "model.layers.*.mlp.shared_expert.down_proj.weight",
                                .gguf = "blk.*.ffn_down_shexp.weight"},
                               {.ours = "layers.*.mlp.shared_gate.weight",
                                .hugging_face = "model.layers.*.mlp.shared_expert_gate.weight",
                                .gguf = "blk.*.ffn_gate_inp_shexp.weight"}});
  return tensors;
}

// 1 for each layer i that is not in mlp_only_layers and for which decoder_sparse_step divides
// i + 1.
std::vector<std::int64_t> layers_with_experts(HuggingFaceConfig& hf, std::int64_t layers) {
  const std::int64_t step = hf.size_or("decoder_sparse_step", 1);
  std::vector<std::int64_t> freq(static_cast<std::size_t>(layers), 0);
  for (std::int64_t i = step - 1; i < layers; i += step) freq[static_cast<std::size_t>(i)] = 1;
  for (const std::int64_t i : hf.numbers_below("mlp_only_layers", layers)) {
    freq[static_cast<std::size_t>(i)] = 0;
  }
  return freq;
}

// The keys that both write.
void write_qwen_experts(const MoeConfig& moe, nlohmann::ordered_json& written) {
  // Qwen3MoeConfig reads num_local_experts, too, which counts before num_experts (5.24).
  write_experts(moe, "num_experts", written);
  written["moe_intermediate_size"] = moe.ffn_hidden_size;
  written["norm_topk_prob"] = moe.norm_topk_prob;
  written["decoder_sparse_step"] = 1;
  nlohmann::ordered_json dense = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < moe.layer_freq.size(); ++i) {
    if (moe.layer_freq[i] == 0) dense.push_back(i);
  }
  written["mlp_only_layers"] = dense;
}

// The model key "moe" that both have.
nlohmann::json qwen_moe_model(HuggingFaceConfig& hf, const ReadExperts& read, std::int64_t layers) {
  nlohmann::json moe =
      moe_model(hf, read, hf.size("moe_intermediate_size"), layers_with_experts(hf, layers));
  moe["norm_topk_prob"] = hf.flag_or("norm_topk_prob", false);
  return moe;
}

std::string qwen2_moe_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "qwen2_moe", "Qwen2MoeForCausalLM");
  written["qkv_bias"] = true;
  write_qwen_window(model, written);
  write_qwen_experts(model.moe, written);
  written["shared_expert_intermediate_size"] = model.moe.shared_expert_intermediate_size;
  return json_text(written, 2);
}

std::string qwen2_moe_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "qwen2_moe", {.groups = 16});
  const auto layers = model.at("num_layers").get<std::int64_t>();
  if (hf.flag_or("use_sliding_window", false) && !hf.is_missing("sliding_window") &&
      !hf.gives("sliding_window")) {
    hf.refuse("sliding_window", "transformers fails with this and use_sliding_window; give a size");
  }
  if (layers <= most_layers) {  // else the model is refused for its size
    // Even layers below max_window_layers slide, unless layer_types names others.
    read_qwen_window(hf, model, [&](std::int64_t first) {
      std::vector<std::int64_t> slide;
      for (std::int64_t i = 0; i < std::min(first, layers); i += 2) slide.push_back(i);
      return slide;
    });
    model["moe"] = qwen_moe_model(hf, {.count_key = "num_experts", .topk = 4}, layers);
    model["moe"]["shared_expert_intermediate_size"] = hf.size("shared_expert_intermediate_size");
  }
  if (!hf.is_missing("head_dim") && !hf.gives("head_dim")) {
    hf.refuse("head_dim", "not supported; leave it out");
  }
  hf.finish();
  return json_text(model);
}

std::string qwen3_moe_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "qwen3_moe", "Qwen3MoeForCausalLM");
  written["attention_bias"] = model.attention_bias;
  written["use_sliding_window"] = model.sliding_window.has_value();
  if (model.sliding_window) written["sliding_window"] = *model.sliding_window;
  write_qwen_experts(model.moe, written);
  return json_text(written, 2);
}

std::string qwen3_moe_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "qwen3_moe", {.groups = 4});
  model["attention_bias"] = hf.flag_or("attention_bias", false);
  const auto layers = model.at("num_layers").get<std::int64_t>();
  const bool window = hf.flag_or("use_sliding_window", false) &&
                      (hf.is_missing("sliding_window") || hf.gives("sliding_window"));
  hf.require_whole("sliding_window", true);
  if (layers <= most_layers) {  // else the model is refused for its size
    if (window) {
      model["sliding_window"] = hf.size_or("sliding_window", 4096);
      std::vector<std::int64_t> all(static_cast<std::size_t>(layers));
      std::iota(all.begin(), all.end(), 0);
      model["window_layers"] = std::move(all);
    }
    const std::string_view count =
        hf.gives("num_local_experts") ? "num_local_experts" : "num_experts";
    model["moe"] = qwen_moe_model(hf, {.count_key = count, .topk = 8}, layers);
  }
  hf.finish();
  return json_text(model);
}

std::string olmoe_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "olmoe", "OlmoeForCausalLM");
  written["attention_bias"] = model.attention_bias;
  written["intermediate_size"] = model.moe.ffn_hidden_size;
  written["norm_topk_prob"] = model.moe.norm_topk_prob;
  // The class takes token 1 where the key is missing.
  if (!model.pad_token_id) written["pad_token_id"] = nullptr;
  write_experts(model.moe, "num_experts", written);
  return json_text(written, 2);
}

std::string olmoe_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model = llama_model(hf, "olmoe", {.norm_epsilon = 1e-5});
  model["attention_bias"] = hf.flag_or("attention_bias", false);
  if (hf.is_missing("pad_token_id") && model["vocab_size"] > 1) model["pad_token_id"] = 1;
  const bool other = model["head_dim"] != model["hidden_size"].get<std::int64_t>() /
                                              model["num_attention_heads"].get<std::int64_t>();
  if (other || (!hf.is_missing("head_dim") && !hf.gives("head_dim"))) {
    hf.refuse("head_dim", "the norm of the queries has hidden_size elements; leave it out");
  }
  const auto layers = model.at("num_layers").get<std::size_t>();
  if (layers <= most_layers) {  // else the model is refused for its size
    const std::string_view count =
        hf.gives("num_local_experts") ? "num_local_experts" : "num_experts";
    model["moe"] = moe_model(hf, {.count_key = count, .topk = 8, .loss_factor = 0.01},
                             model.at("ffn_hidden_size"), std::vector<std::int64_t>(layers, 1));
    model["moe"]["norm_topk_prob"] = hf.flag_or("norm_topk_prob", false);
  }
  hf.finish();
  return json_text(model);
}

void qwen2_moe_gguf_keys(const ModelConfig& model, GgufForm& form) {
  expert_gguf_keys(model, {.may_be_tied = false, .may_have_any_heads = false}, form);
}
void olmoe_gguf_keys(const ModelConfig& model, GgufForm& form) {
  expert_gguf_keys(
      model, {.may_be_tied = false, .may_have_any_heads = false, .may_group_queries = false}, form);
}
void qwen3_moe_gguf_keys(const ModelConfig& model, GgufForm& form) {
  expert_gguf_keys(model, {.normalized = true}, form);
}

const FamilyFormatTables& qwen2_moe_tables() {
  static const FamilyFormatTables tables{.model_type = "qwen2_moe",
                                         .classes = qwen2_moe_classes,
                                         .keys = {qwen2_moe_keys, llama_shared_keys()},
                                         .tensors = qwen_moe_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = qwen2_moe_write_config,
                                         .read_config = qwen2_moe_read_config,
                                         .gguf_architecture = "qwen2moe",
                                         .gguf_keys = qwen2_moe_gguf_keys};
  return tables;
}

const FamilyFormatTables& qwen3_moe_tables() {
  static const FamilyFormatTables tables{.model_type = "qwen3_moe",
                                         .classes = qwen3_moe_classes,
                                         .keys = {qwen3_moe_keys, llama_shared_keys()},
                                         .tensors = qwen_moe_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = qwen3_moe_write_config,
                                         .read_config = qwen3_moe_read_config,
                                         .gguf_architecture = "qwen3moe",
                                         .gguf_keys = qwen3_moe_gguf_keys};
  return tables;
}

const FamilyFormatTables& olmoe_tables() {
  static const FamilyFormatTables tables{.model_type = "olmoe",
                                         .classes = olmoe_classes,
                                         .keys = {olmoe_keys, llama_shared_keys()},
                                         .tensors = qwen_moe_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = olmoe_write_config,
                                         .read_config = olmoe_read_config,
                                         .gguf_architecture = "olmoe",
                                         .gguf_keys = olmoe_gguf_keys};
  return tables;
}

}  // namespace

const FamilyFormatTables& olmoe_formats() {
  return olmoe_tables();
}
const FamilyFormatTables& qwen2_moe_formats() {
  return qwen2_moe_tables();
}
const FamilyFormatTables& qwen3_moe_formats() {
  return qwen3_moe_tables();
}

}  // namespace trident
