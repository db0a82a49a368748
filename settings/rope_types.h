// The scalings of rotary positions, by the names that transformers gives them (rope_type), and the
// keys of model.rope_scaling that each of them reads. A type's formula is in models/transformer.cc
// (rotary_frequencies), its keys for llama.cpp in models/llama_formats.cc (llama_gguf_keys); both
// refuse a type that they don't know.
#pragma once

#include <array>
#include <string_view>

namespace trident {

struct RopeType {
  std::string_view name;
  std::array<std::string_view, 8> keys = {};  // beside rope_type; "" beyond the last one

  bool reads(std::string_view key) const {
    for (const std::string_view one : keys) {
      if (one == key) return true;
    }
    return false;
  }
};

inline constexpr RopeType rope_types[] = {
    {"default"},
    {"linear", {"factor"}},
    {"llama3",
     {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"}},
    {"yarn",
     {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate",
      "attention_factor", "mscale", "mscale_all_dim"}},
};

// The row of this name; nullptr if there is none.
inline const RopeType* find_rope_type(std::string_view name) {
  for (const RopeType& type : rope_types) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace trident
