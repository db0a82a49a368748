// Configs to start from.
#pragma once

#include <string>
#include <vector>

#include "settings/constraints.h"

namespace trident {

struct Preset {
  std::string name;
  std::string about;
  std::string config;  // JSON: the sections that differ from those that all have
  int gpus = 0;        // so many of 80 GB are a start; 0: a processor trains it
};

// By size; models as they were published. The first one, on bytes, runs on any machine.
const std::vector<Preset>& presets();

// The text of a config file, with comments: of the preset, for files of that name. RequestError
// with those that there are where there is none such.
std::string preset_config(const std::string& preset, const std::string& name,
                          const ConfigConstraints&);

// What comes after preset_config() until it trains, as lines for a shell: texts, a tokenizer where
// it has one, and commands. `file`: the config's, as a shell takes it.
std::vector<std::string> preset_next(const std::string& preset, const std::string& file);

}  // namespace trident
