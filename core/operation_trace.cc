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
  waits_.clear();
  timed_.clear();
  place_ = {};
  actions_ = 0;
}

OperationTrace::Marks& OperationTrace::time_last() {
  return timed_.emplace_back(Timed{.operation = operations_.size() - 1}).marks;
}

void OperationTrace::compute_times() {
  const Timed* before = nullptr;
  for (const Timed& timed : timed_) {
    TracedOperation& one = operations_[timed.operation];
    one.seconds = 1e-9 * static_cast<double>(timed.marks.end.wall_ns - timed.marks.begin.wall_ns);
    if (before != nullptr && before->operation + 1 == timed.operation &&
        operations_[before->operation].action == one.action) {
      one.gap = 1e-9 * static_cast<double>(timed.marks.begin.wall_ns - before->marks.end.wall_ns);
    }
    before = &timed;
  }
}

}  // namespace trident
