// Names in other programs' files (models/family_formats.h) that the families derived from Llama
// share.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/family_format_tables.h"

namespace trident {

// The keys of config.json that all of them know.
std::span<const HuggingFaceKey> llama_shared_keys();
// The names of every parameter that such a model may have, biases included.
std::span<const StoredTensor> llama_tensors();
std::span<const std::string_view> llama_buffers();

// The keys of config.json that all of them write. `model_class` is "LlamaForCausalLM" and the like.
nlohmann::ordered_json llama_config(const ModelConfig&, DType, std::string_view model_type,
                                    std::string_view model_class);
inline constexpr std::int64_t most_layers = 100'000;  // the range of model.num_layers

// transformers' defaults for missing keys, by family.
struct LlamaDefaults {
  std::int64_t groups = 0;  // num_key_value_heads; 0: num_attention_heads
  double norm_epsilon = 1e-6, rotary_base = 1e4;
};
// The model keys, as JSON, that all of them read. The caller reads its own keys, then calls
// HuggingFaceConfig::finish().
nlohmann::json llama_model(HuggingFaceConfig&, std::string_view architecture,
                           const LlamaDefaults& defaults = {});

// The keys that llama.cpp reads of all of them. Throws RequestError for a model that it would
// compute otherwise.
void llama_gguf_keys(const ModelConfig&, GgufForm&);

}  // namespace trident
