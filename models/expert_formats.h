// Names in other programs' files (models/family_formats.h) that families with experts share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "models/family_format_tables.h"

namespace trident {

// The names of llama_tensors() and of `experts`.
std::vector<StoredTensor> with_expert_tensors(std::initializer_list<StoredTensor> experts);
// The same with those of a router "mlp.gate" and of experts "mlp.experts.N.gate_proj" and so on,
// which all families but Mixtral have.
std::vector<StoredTensor> with_mlp_expert_tensors(std::initializer_list<StoredTensor> others);

// The defaults of a family's config.json for its experts.
struct ReadExperts {
  std::string_view count_key = "num_local_experts";
  std::int64_t topk = 0;      // where num_experts_per_tok is missing
  double loss_factor = 1e-3;  // where router_aux_loss_coef is missing
  bool has_loss = true;       // false: the family has no such key
};
// The model key "moe", as JSON, for the layers in which `freq` is 1. The balancing loss is that of
// the folder where output_router_logits is true, as in transformers, and else none.
nlohmann::json moe_model(HuggingFaceConfig&, const ReadExperts&, std::int64_t ffn,
                         const std::vector<std::int64_t>& freq);
// The assumptions of llama.cpp's code for a family with experts.
struct GgufExperts {
  bool normalized = false;  // a token's weights are divided by their sum
  bool may_be_tied = true, may_have_any_heads = true;
  bool may_group_queries = true;  // fewer heads of keys and values than of queries
};
// The keys that llama.cpp reads of models with experts. Throws RequestError for a model that it
// would compute otherwise, or not load.
void expert_gguf_keys(const ModelConfig&, const GgufExperts&, GgufForm&);
// Adds the keys that all of them write.
void write_experts(const MoeConfig&, std::string_view count_key, nlohmann::ordered_json& written);

}  // namespace trident
