// The files of Qwen's mixtures of experts, as transformers' Qwen3MoeForCausalLM stores them: Qwen
// 3's, with a router and matrices of each expert in place of the MLP in some layers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/files/json.h"
#include "models/expert_formats.h"
#include "models/llama_formats.h"

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

constexpr std::string_view qwen3_moe_classes[] = {"Qwen3MoeForCausalLM", "Qwen3MoeModel"};

const std::vector<StoredTensor>& qwen_moe_tensors() {
  static const std::vector<StoredTensor> tensors =
      with_expert_tensors({{.ours = "layers.*.mlp.router.weight",
                            .hugging_face = "model.layers.*.mlp.gate.weight",
                            .gguf = "blk.*.ffn_gate_inp.weight"},
                           {.ours = "layers.*.mlp.experts.up",
                            .hugging_face = "model.layers.*.mlp.experts.#.gate_proj.weight",
                            .gguf = "blk.*.ffn_gate_exps.weight",
                            .rows = StoredRows::expert_gate,
                            .fused = "model.layers.*.mlp.experts.gate_up_proj"},
                           {.ours = "layers.*.mlp.experts.up",
                            .hugging_face = "model.layers.*.mlp.experts.#.up_proj.weight",
                            .gguf = "blk.*.ffn_up_exps.weight",
                            .rows = StoredRows::expert_up,
                            .fused = "model.layers.*.mlp.experts.gate_up_proj"},
                           {.ours = "layers.*.mlp.experts.down",
                            .hugging_face = "model.layers.*.mlp.experts.#.down_proj.weight",
                            .gguf = "blk.*.ffn_down_exps.weight",
                            .rows = StoredRows::expert_down,
                            .fused = "model.layers.*.mlp.experts.down_proj"}});
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

std::string qwen3_moe_write_config(const Config& config) {
  const ModelConfig& model = config.model;
  nlohmann::ordered_json written = llama_config(config, "qwen3_moe", "Qwen3MoeForCausalLM");
  written["attention_bias"] = model.attention_bias;
  written["use_sliding_window"] = model.sliding_window.has_value();
  if (model.sliding_window) written["sliding_window"] = *model.sliding_window;
  // This class reads num_experts, too, but num_local_experts counts before it (5.24).
  write_experts(model.moe, "num_experts", written);
  written["moe_intermediate_size"] = model.moe.ffn_hidden_size;
  written["norm_topk_prob"] = model.moe.norm_topk_prob;
  written["decoder_sparse_step"] = 1;
  nlohmann::ordered_json dense = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < model.moe.layer_freq.size(); ++i) {
    if (model.moe.layer_freq[i] == 0) dense.push_back(i);
  }
  written["mlp_only_layers"] = dense;
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
    model["moe"] = moe_model(hf, {.count_key = count, .topk = 8}, hf.size("moe_intermediate_size"),
                             layers_with_experts(hf, layers));
    model["moe"]["norm_topk_prob"] = hf.flag_or("norm_topk_prob", false);
  }
  hf.finish();
  return json_text(model);
}

void qwen3_moe_gguf_keys(const Config&, GgufForm&) {
  throw RequestError("Trident writes no GGUF file of a mixture of experts");
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

}  // namespace

const FamilyFormatTables& qwen3_moe_formats() {
  return qwen3_moe_tables();
}

}  // namespace trident
