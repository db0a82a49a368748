// Compares the config of a resumed run with the config.json of its checkpoint. Any thread may call
// it; it is not collective.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// Returns one line for each key in which `config` differs from `saved`, the text of a config.json;
// `name` is its path, for messages. Throws RequestError where a key that shapes the model differs,
// since the saved state does not fit then. With `grows`, the saved vocabulary may be smaller.
std::vector<std::string> config_differences(const std::string& saved, const Config& config,
                                            const std::string& name, bool grows = false);

}  // namespace trident
