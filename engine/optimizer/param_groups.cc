#include "engine/optimizer/param_groups.h"

#include <fnmatch.h>

namespace trident {

const ParamGroup* group_of(const std::vector<ParamGroup>& groups, const std::string& parameter) {
  for (const ParamGroup& group : groups) {
    if (::fnmatch(group.params.c_str(), parameter.c_str(), 0) == 0) return &group;
  }
  return nullptr;
}

}  // namespace trident
