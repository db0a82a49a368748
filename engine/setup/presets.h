// Preset configs to start from.
#pragma once

#include <string>
#include <vector>

#include "settings/constraints.h"

namespace trident {

struct Preset {
  std::string name;
  std::string about;
  std::string config;  // JSON: the keys that differ from the common part of all presets
  int gpus = 0;        // a suggested number of 80 GB GPUs; 0: a CPU can train it
};

// By size; models as published. The first preset, on bytes, runs on any machine.
const std::vector<Preset>& presets();

// The text of a config file, with comments, made from the preset; `name` is the name for its output
// folders. Throws RequestError, with the nearest name, for an unknown preset.
std::string preset_config(const std::string& preset, const std::string& name,
                          const ConfigConstraints&);

// The steps from preset_config() to training, as lines for a shell: texts, a tokenizer if the
// preset has one, and commands. `file`: the path of the config, quoted for a shell.
std::vector<std::string> preset_next(const std::string& preset, const std::string& file);

}  // namespace trident
