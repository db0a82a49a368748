// The directories of weights that commands accept: a Hugging Face directory, or the directory of a
// run. These functions read files; any thread may call them.
#pragma once

#include <string>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// Returns `path`. If it is the directory of a run, returns the directory of the weights that the
// run saved (checkpoint.save in its config.json). Throws RequestError if that can't be found.
std::string weights_directory(const std::string& path);

// The "model" section of a config for the weights in a Hugging Face directory, as JSON text. Throws
// RequestError unless this program supports the model of its config.json.
std::string model_section(const ArchitectureSet&, const std::string& directory);

// The config of a single-rank run of the model in `directory`, for generate, export and import. Its
// precision is that of config.json. If config.json has none, or if `exact` is set, it is the one
// that holds every tensor exactly (RequestError for F64), and the model has the layers that predict
// further tokens of which there are tensors. Throws RequestError unless this program
// supports the model and the headers of the weights' files fit it. So memory that is allocated for
// the model is in proportion to these files.
Config config_of_directory(const ArchitectureSet&, const std::string& directory,
                           bool exact = false);

}  // namespace trident
