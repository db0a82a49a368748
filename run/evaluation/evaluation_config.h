// The config by which weights are evaluated: their model, and the data that is asked for or was the
// run's.
#pragma once

#include <string>

#include "run/evaluation/evaluation.h"

namespace trident {

// As JSON; `weights`: the directory of the weights that the request's directory leads to.
// RequestError where that is no model, or nothing says which data.
std::string evaluation_config(const EvaluationRequest& request, const std::string& weights);

}  // namespace trident
