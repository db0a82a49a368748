#include "core/operation_trace.h"

#include <algorithm>

namespace trident {

int OperationTrace::number_of(const std::string& name, int size, int rank) {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& group) { return group.name == name; });
  const auto number = static_cast<int>(found - groups_.begin());
  if (found == groups_.end()) groups_.push_back({name, size, rank});
  return number;
}

void OperationTrace::clear() {
  operations_.clear();
  action_ = -1;
  actions_ = 0;
}

}  // namespace trident
