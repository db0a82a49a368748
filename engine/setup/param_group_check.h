// Checks that optimizer.param_groups names parameters of the model.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// The names of all parameters of the model; a tied parameter appears once.
std::vector<std::string> parameter_names(const Config&, const Architecture&);

// Throws RequestError at /optimizer/param_groups for each pattern that matches no parameter, or
// only parameters that an earlier pattern matches.
void check_param_groups(const Config&, const Architecture&);

}  // namespace trident
