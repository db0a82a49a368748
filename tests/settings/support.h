// A config of a few lines that the config tests change by overrides.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/setup/registry.h"
#include "settings/config.h"

namespace trident {

inline constexpr const char* kSmallConfig = R"({
  "model": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4},
  "batch": {"global_batch_size": 8},
  "data": {"train": [{"path": "text.txt"}], "sequence_length": 32}
})";

inline LoadOptions with_constraints(LoadOptions options) {
  if (!options.constraints) options.constraints = built_in_constraints();
  return options;
}

// parse_config and load_config with the built-in constraints, unless the options have others.
inline LoadedConfig parse(std::string_view text, const std::vector<std::string>& overrides = {},
                          const LoadOptions& options = {},
                          const std::string& name = "config.json") {
  return parse_config(text, overrides, with_constraints(options), name);
}
inline LoadedConfig load(const std::string& path, const std::vector<std::string>& overrides = {},
                         const LoadOptions& options = {}) {
  return load_config(path, overrides, with_constraints(options));
}

inline Config small_config(const std::vector<std::string>& overrides = {},
                           const LoadOptions& options = {}) {
  return parse(kSmallConfig, overrides, options).config;
}

// Every problem of the small config with these overrides, in order; empty if it loads.
inline std::vector<std::string> problems_of(const std::vector<std::string>& overrides,
                                            const LoadOptions& options = {},
                                            const std::string& text = kSmallConfig) {
  try {
    parse(text, overrides, options);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

}  // namespace trident
