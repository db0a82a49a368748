// A config of a few lines that the config tests change by overrides.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "core/error.h"

namespace trident {

inline constexpr const char* kSmallConfig = R"({
  "model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4},
  "batch": {"global_batch_size": 8},
  "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}
})";

inline Config small_config(const std::vector<std::string>& overrides = {},
                           const LoadOptions& options = {}) {
  return parse_config(kSmallConfig, overrides, options).config;
}

// Every problem of the small config with these overrides, in order; empty where it loads.
inline std::vector<std::string> problems_of(const std::vector<std::string>& overrides,
                                            const LoadOptions& options = {},
                                            const std::string& text = kSmallConfig) {
  try {
    parse_config(text, overrides, options);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

}  // namespace trident
