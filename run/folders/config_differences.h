// What a run that goes on does otherwise than the one that saved.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// What a run with `config` does otherwise than the one that saved this config.json, a line each:
// keys of the model make a RequestError instead, since the state is of no use then; `grows`: but
// for a vocabulary that was smaller.
std::vector<std::string> config_differences(const std::string& saved, const Config& config,
                                            const std::string& name, bool grows = false);

}  // namespace trident
