// By how much ranks that do the same are apart when they meet.
#pragma once

#include <optional>
#include <vector>

#include "core/operation_trace.h"

namespace trident {

class MeasuredSkew {
 public:
  // Of the same step of ranks that ran side by side, one at least; traces of other operations than
  // the first's are left out together.
  void take(const std::vector<const OperationTrace*>&);
  // By how much more the last of the ranks took for its kernels between two meetings within layers
  // than they did on average, as a part of that, at most 1. Not there: they never met.
  std::optional<double> part() const;

 private:
  double last_ = 0, mean_ = 0;  // seconds between meetings
};

}  // namespace trident
