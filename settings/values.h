// The values of a loaded config, key by key, for comparing two configs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "settings/config.h"

namespace trident {

// Each key ("/data/seed") with its value as JSON, in the order of the reference page.
std::vector<std::pair<std::string, std::string>> config_values(const Config& config);

}  // namespace trident
