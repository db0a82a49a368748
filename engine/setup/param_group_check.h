// Whether optimizer.param_groups names parameters that the model has.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

// The names of all parameters of the model, tied ones once.
std::vector<std::string> parameter_names(const Config&, const Architecture&);

// RequestError at /optimizer/param_groups where a pattern matches no parameter that an earlier one
// hasn't taken.
void check_param_groups(const Config&, const Architecture&);

}  // namespace trident
