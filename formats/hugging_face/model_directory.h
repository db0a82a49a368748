// Directories of weights as commands take them: a Hugging Face directory, or a run's.
#pragma once

#include <string>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// `path`, or where it is the directory of a run, that of the weights which the run saved
// (checkpoint.save in its config.json). RequestError where that isn't there.
std::string weights_directory(const std::string& path);

// The "model" section of a config for the weights in a Hugging Face directory, as JSON text.
// RequestError unless its config.json asks for a model that this program computes.
std::string model_section(const ArchitectureSet&, const std::string& directory);

// The config of a single-rank run of the model in `directory`, for generate, export and import.
// Its precision is that of config.json where this has one; where not, or where it has to be
// `exact`, the one that holds every tensor as it is (RequestError for F64). RequestError unless
// config.json asks for a model that this program computes and the headers of the weights' files
// fit it; what is then allocated for the model is in proportion to those files.
Config config_of_directory(const ArchitectureSet&, const std::string& directory,
                           bool exact = false);

}  // namespace trident
