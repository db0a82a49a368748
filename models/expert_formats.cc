#include "models/expert_formats.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
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

void expert_gguf_keys(const ModelConfig& model, const GgufExperts& there, GgufForm& form) {
  llama_gguf_keys(model, form);
  const MoeConfig& moe = model.moe;
  const auto refuse = [&](bool wrong, const char* what) {
    if (wrong) throw RequestError(fmt::format("llama.cpp's {} {}", form.architecture, what));
  };
  refuse(std::ssize(moe.layers()) != model.num_layers,
         "has experts in all layers, this model in some");
  refuse(moe.norm_topk_prob != there.normalized,
         there.normalized ? "divides the weights of experts by their sum, this model doesn't"
                          : "doesn't divide the weights of experts by their sum, this model does");
  refuse(model.tie_word_embeddings && !there.may_be_tied,
         "needs an output table of its own, this model ties it to the embedding");
  refuse(moe.num_experts < 2 || moe.num_experts > 1024, "has from 2 to 1024 experts");
  refuse(model.attention_bias, "has no attention_bias, but this model has one");
  refuse(
      model.head_dim * model.num_attention_heads != model.hidden_size && !there.may_have_any_heads,
      "has heads of hidden_size / num_attention_heads only");
  refuse(model.num_query_groups != model.num_attention_heads && !there.may_group_queries,
         "has as many heads of keys and values as of queries (num_query_groups)");
  form.sizes.emplace_back("expert_count", moe.num_experts);
  form.sizes.emplace_back("expert_used_count", moe.router_topk);
  form.sizes.emplace_back("expert_feed_forward_length", moe.ffn_hidden_size);
  if (moe.shared_expert_intermediate_size > 0) {
    form.sizes.emplace_back("expert_shared_feed_forward_length",
                            moe.shared_expert_intermediate_size);
  }
}

void write_experts(const MoeConfig& moe, std::string_view count_key,
                   nlohmann::ordered_json& written) {
  written[std::string(count_key)] = moe.num_experts;
  written["num_experts_per_tok"] = moe.router_topk;
  written["router_aux_loss_coef"] = moe.aux_loss_coeff;
  written["output_router_logits"] = false;
}

}  // namespace trident
