// Kernels that ran, as a machine's file has them.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation_trace.h"
#include "planner/machine/machine.h"

namespace trident {

// By which the time of a measured kernel of that name is divided (operation_times.h).
double efficiency_of(const Machine&, std::string_view kernel);

class MeasuredKernels {
 public:
  // Those of a trace with seconds.
  void take(const OperationTrace&);
  // Into a machine, for which they then take as long as they did: the median of each size, in place
  // of what it has of that size.
  void enter(Machine&) const;
  // Of a trace without seconds: whether it has something to measure. A product or attention of
  // another size, since those have rates of their own; another kernel by its bytes, beyond those
  // that were seen. Counts it as seen.
  bool see(const OperationTrace&);
  // Seconds of the host between kernels, the mean without the longest fiftieth; 0: unknown.
  double between() const;

 private:
  using Size = std::array<double, 3>;
  std::map<std::string, std::map<Size, std::vector<double>>> times_, seen_;
  std::vector<double> gaps_;
};

}  // namespace trident
