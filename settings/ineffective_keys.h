// Keys without effect in a layout, such as sequence_parallel without tensor parallelism.
//
// Loading a config switches these keys off, so that one config serves every layout of a sweep. A
// request that can't be carried out remains an error, as does a key that has no effect in any
// layout. The functions are pure.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// One note for each key of `written` that has no effect in the layout of `config`, which was loaded
// from it: "config: /parallel/sequence_parallel: true has no effect with
// tensor_model_parallel_size 1 and is taken as false". A command that loads a config prints the
// notes once. {} where `written` is "".
std::vector<std::string> ineffective_key_notes(const Config& config, const std::string& written);
// As above; {} where the layout is still to be chosen.
std::vector<std::string> ineffective_key_notes(const LoadedConfig&);

}  // namespace trident
