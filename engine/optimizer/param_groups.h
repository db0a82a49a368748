// Which parameters have a rate or a weight decay of their own: optimizer.param_groups.
#pragma once

#include <string>
#include <vector>

#include "settings/config.h"

namespace trident {

// The first of the groups whose pattern (fnmatch(3): *, ?, [...]) the parameter's name matches;
// nullptr: none.
const ParamGroup* group_of(const std::vector<ParamGroup>& groups, const std::string& parameter);

}  // namespace trident
