// Collects the times of kernels from traces and enters them into a machine's file. Not thread-safe.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation_trace.h"
#include "planner/machine/machine.h"

namespace trident {

// The efficiency by which operation_times.h divides the time of a measured kernel of that name.
double efficiency_of(const Machine&, std::string_view kernel);

class MeasuredKernels {
 public:
  // Adds the kernels of a trace that has times.
  void take(const OperationTrace&);
  // Enters the median time of each size into a machine, and replaces what the machine has for that
  // size. The planner then predicts the measured times.
  void enter(Machine&) const;
  // Whether a trace without times has a kernel that is worth measuring, and marks its kernels as
  // seen. A product or attention is worth measuring at each new size, since each size has its own
  // rate. Any other kernel is worth measuring if its bytes lie outside the range seen so far.
  bool see(const OperationTrace&);
  // The host's seconds between two kernels: the mean without the longest 2%; 0: unknown.
  double between() const;

 private:
  using Size = std::array<double, 3>;
  std::map<std::string, std::map<Size, std::vector<double>>> times_, seen_;
  std::vector<double> gaps_;
};

}  // namespace trident
