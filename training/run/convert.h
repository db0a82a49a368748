// Rewrites a directory of weights: reads every tensor, checks it against config.json, writes it.
#pragma once

#include <string>

#include "models/architecture.h"

namespace trident {

// Every bit of the weights stays, and so does what lies beside them (hugging_face_extras.h).
// RequestError, and nothing is written, where `from` is no Hugging Face directory of a known
// architecture whose files fit its config, where `to` holds a model already and isn't to be
// overwritten, is the same directory, or can't be written.
void convert_weights(const ArchitectureSet&, const std::string& from, const std::string& to,
                     bool overwrite = false);

}  // namespace trident
