// Measures the skew between ranks that run the same kernels: how unequal their times are when they
// reach a common operation. Not thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "core/operation_trace.h"

namespace trident {

class MeasuredSkew {
 public:
  // Adds one step: the traces of ranks that ran it concurrently, at least one. Ignores the step if
  // the traces differ in their number of operations.
  void take(const std::vector<const OperationTrace*>&);
  // The relative skew, at most 1: how much longer than the average the slowest rank took for its
  // kernels between two collective operations within layers. nullopt if there was no such
  // operation.
  std::optional<double> part() const;

 private:
  double last_ = 0, mean_ = 0;  // seconds between collectives: slowest rank, average
};

}  // namespace trident
