// Makes the config for an evaluation from the model of the weights and the data of the request, or
// of the run if the request names no data.
#pragma once

#include <string>

#include "run/evaluation/evaluation.h"

namespace trident {

// The config as JSON. `weights` is the directory of the weights that belongs to the request's
// directory. RequestError where it holds no model, or where neither request nor run names data.
std::string evaluation_config(const EvaluationRequest& request, const std::string& weights);

}  // namespace trident
