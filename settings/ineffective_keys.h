// Keys that have no effect in a layout, such as sequence_parallel without tensor parallelism.
// Loading a config switches them off, so that one config serves every layout of a sweep. What can't
// be done as configured stays an error, and so does what no layout would give an effect.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// What a config that was `written` so asks for to no effect in the layout of `config`, which was
// loaded from it: "config: /parallel/sequence_parallel: true has no effect with
// tensor_model_parallel_size 1 and is taken as false". For people: whoever loads a config for them
// tells it once. {} where `written` is "".
std::vector<std::string> ineffective_key_notes(const Config& config, const std::string& written);
// None where the layout has still to be chosen.
std::vector<std::string> ineffective_key_notes(const LoadedConfig&);

}  // namespace trident
