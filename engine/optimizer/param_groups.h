// Finds the parameter group (optimizer.param_groups) that gives a parameter its own rate or weight
// decay.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// The first group whose pattern (fnmatch(3): *, ?, [...]) matches the parameter's name; nullptr if
// no group does.
const ParamGroup* group_of(const std::vector<ParamGroup>& groups, const std::string& parameter);

}  // namespace trident
