// Rewrites a directory of weights: reads every tensor, checks it against config.json, writes it.
#pragma once

#include <string>

#include "models/architecture.h"

namespace trident {

// RequestError where `from` is no Hugging Face directory of a known architecture, or `to` can't be
// written.
void convert_weights(const ArchitectureSet&, const std::string& from, const std::string& to);

}  // namespace trident
