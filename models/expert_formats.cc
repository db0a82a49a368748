#include "models/expert_formats.h"

#include <nlohmann/json.hpp>

#include "models/llama_formats.h"

namespace trident {

std::vector<StoredTensor> with_expert_tensors(std::initializer_list<StoredTensor> experts) {
  const auto shared = llama_tensors();
  std::vector<StoredTensor> all(shared.begin(), shared.end());
  all.insert(all.end(), experts);
  return all;
}

std::vector<StoredTensor> with_mlp_expert_tensors(std::initializer_list<StoredTensor> others) {
  auto all = with_expert_tensors({{.ours = "layers.*.mlp.router.weight",
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
  all.insert(all.end(), others);
  return all;
}

nlohmann::json moe_model(HuggingFaceConfig& hf, const ReadExperts& read, std::int64_t ffn,
                         const std::vector<std::int64_t>& freq) {
  nlohmann::json moe{{"num_experts", hf.size(read.count_key)},
                     {"router_topk", hf.size_or("num_experts_per_tok", read.topk)},
                     {"ffn_hidden_size", ffn},
                     {"layer_freq", freq},
                     {"router_load_balancing_type", "none"}};
  const bool trains_loss = hf.flag_or("output_router_logits", false);
  if (!read.has_loss) return moe;
  const double factor = hf.number_from_zero_or("router_aux_loss_coef", read.loss_factor);
  if (trains_loss && factor > 0) moe["router_load_balancing_type"] = "seq_aux_loss";
  moe["aux_loss_coeff"] = factor;
  return moe;
}

void write_experts(const MoeConfig& moe, std::string_view count_key,
                   nlohmann::ordered_json& written) {
  written[std::string(count_key)] = moe.num_experts;
  written["num_experts_per_tok"] = moe.router_topk;
  written["router_aux_loss_coef"] = moe.aux_loss_coeff;
  written["output_router_logits"] = false;
}

}  // namespace trident
