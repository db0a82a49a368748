// Mixtral's files, as transformers' MixtralForCausalLM stores them: Mistral's, with a matrix of
// each expert. transformers 5 also writes the experts of a layer as one tensor
// (save_original_format=False), and reads Mixtral's names after "mlp.", too.
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

// The keys that transformers' MixtralConfig, 4.36 to 5.24, has beside Llama's.
constexpr HuggingFaceKey mixtral_keys[] = {
    {"sliding_window", Use::model},
    {"num_local_experts", Use::model},
    {"num_experts_per_tok", Use::model},
    {"router_aux_loss_coef", Use::training},
    {"output_router_logits", Use::training},
    // Multiplies the experts' input by random numbers in training.
    {"router_jitter_noise", Use::fixed, "[0]"},
};

constexpr std::string_view mixtral_classes[] = {"MixtralForCausalLM", "MixtralModel"};

const std::vector<StoredTensor>& mixtral_tensors() {
  static const std::vector<StoredTensor> tensors =
      with_expert_tensors({{.ours = "layers.*.mlp.router.weight",
                            .hugging_face = "model.layers.*.block_sparse_moe.gate.weight",
                            .gguf = "blk.*.ffn_gate_inp.weight",
                            .also = "model.layers.*.mlp.gate.weight"},
                           {.ours = "layers.*.mlp.experts.up",
                            .hugging_face = "model.layers.*.block_sparse_moe.experts.#.w1.weight",
                            .gguf = "blk.*.ffn_gate_exps.weight",
                            .rows = StoredRows::expert_gate,
                            .also = "model.layers.*.mlp.experts.#.w1.weight",
                            .fused = "model.layers.*.mlp.experts.gate_up_proj"},
                           {.ours = "layers.*.mlp.experts.up",
                            .hugging_face = "model.layers.*.block_sparse_moe.experts.#.w3.weight",
                            .gguf = "blk.*.ffn_up_exps.weight",
                            .rows = StoredRows::expert_up,
                            .also = "model.layers.*.mlp.experts.#.w3.weight",
                            .fused = "model.layers.*.mlp.experts.gate_up_proj"},
                           {.ours = "layers.*.mlp.experts.down",
                            .hugging_face = "model.layers.*.block_sparse_moe.experts.#.w2.weight",
                            .gguf = "blk.*.ffn_down_exps.weight",
                            .rows = StoredRows::expert_down,
                            .also = "model.layers.*.mlp.experts.#.w2.weight",
                            .fused = "model.layers.*.mlp.experts.down_proj"}});
  return tensors;
}

std::string mixtral_write_config(const ModelConfig& model, DType dtype) {
  nlohmann::ordered_json written = llama_config(model, dtype, "mixtral", "MixtralForCausalLM");
  written["intermediate_size"] = model.moe.ffn_hidden_size;
  written["sliding_window"] = nullptr;
  if (model.sliding_window) written["sliding_window"] = *model.sliding_window;
  write_experts(model.moe, "num_local_experts", written);
  return json_text(written, 2);
}

std::string mixtral_read_config(HuggingFaceConfig& hf) {
  nlohmann::json model =
      llama_model(hf, "mixtral", {.groups = 8, .norm_epsilon = 1e-5, .rotary_base = 1e6});
  const auto layers = model.at("num_layers").get<std::size_t>();
  if (layers <= most_layers) {  // else the model is refused for its size
    if (hf.gives("sliding_window")) {
      model["sliding_window"] = hf.size("sliding_window");
      std::vector<std::int64_t> all(layers);
      std::iota(all.begin(), all.end(), 0);
      model["window_layers"] = std::move(all);
    }
    model["moe"] = moe_model(hf, {.topk = 2}, model.at("ffn_hidden_size"),
                             std::vector<std::int64_t>(layers, 1));
  }
  hf.finish();
  return json_text(model);
}

void mixtral_gguf_keys(const ModelConfig& model, GgufForm& form) {
  expert_gguf_keys(model, {.normalized = true}, form);
}

const FamilyFormatTables& mixtral_tables() {
  static const FamilyFormatTables tables{.model_type = "mixtral",
                                         .classes = mixtral_classes,
                                         .keys = {mixtral_keys, llama_shared_keys()},
                                         .tensors = mixtral_tensors(),
                                         .buffers = llama_buffers(),
                                         .write_config = mixtral_write_config,
                                         .read_config = mixtral_read_config,
                                         .gguf_architecture = "llama",
                                         .gguf_interleaves = true,
                                         .gguf_keys = mixtral_gguf_keys};
  return tables;
}

}  // namespace

const FamilyFormatTables& mixtral_formats() {
  return mixtral_tables();
}

}  // namespace trident
