#include "run/measurement/measured_kernels.h"

#include <algorithm>

#include "base/median.h"
#include "planner/machine/operation_times.h"

namespace trident {
namespace {

std::array<double, 3> size_of_kernel(const TracedOperation& one) {
  const auto bytes = static_cast<double>(one.bytes_read + one.bytes_written);
  if (one.name == "gemm") {
    return {static_cast<double>(one.shape.dim(0)), static_cast<double>(one.shape.dim(1)),
            static_cast<double>(one.shape.dim(2))};
  }
  if (one.flops > 0) return {one.flops, bytes, 0};
  return {bytes, 0, 0};
}

bool is_product(std::string_view kernel) {
  return kernel.starts_with("gemm") || kernel.starts_with("grouped") ||
         kernel.starts_with("attention");
}

// Whether a time of the operation says anything. A product of no rows, as that of a rank whose
// experts no token takes, has no size.
bool counts(const TracedOperation& one) {
  return one.group < 0 && (one.flops > 0 || !is_product(one.name));
}

}  // namespace

double efficiency_of(const Machine& machine, std::string_view kernel) {
  return is_product(kernel) ? machine.efficiency.products : machine.efficiency.memory;
}

void MeasuredKernels::take(const OperationTrace& trace) {
  for (const TracedOperation& one : trace.operations()) {
    if (!counts(one) || one.seconds <= 0) continue;
    times_[measured_name(one)][size_of_kernel(one)].push_back(one.seconds);
    if (one.gap >= 0) gaps_.push_back(one.gap);
  }
}

void MeasuredKernels::enter(Machine& machine) const {
  for (const auto& [name, sizes] : times_) {
    std::vector<MeasuredKernel>& kernels = machine.device.kernels[name];
    for (const auto& [size, seconds] : sizes) {
      if (size[0] <= 0) continue;
      std::erase_if(kernels, [&](const MeasuredKernel& one) { return one.size == size; });
      // The planner divides times by the efficiency, which a measured time includes already.
      kernels.push_back({size, median(seconds) * efficiency_of(machine, name)});
    }
    std::sort(kernels.begin(), kernels.end(),
              [](const auto& a, const auto& b) { return a.size < b.size; });
  }
}

bool MeasuredKernels::see(const OperationTrace& trace) {
  bool found = false;
  for (const TracedOperation& one : trace.operations()) {
    if (!counts(one)) continue;
    auto& sizes = seen_[measured_name(one)];
    const Size size = size_of_kernel(one);
    const bool within = one.flops == 0 && !sizes.empty() && size[0] >= sizes.begin()->first[0] &&
                        size[0] <= sizes.rbegin()->first[0];
    if (!within) found = sizes.try_emplace(size).second || found;
  }
  return found;
}

double MeasuredKernels::between() const {
  std::vector<double> gaps = gaps_;
  std::sort(gaps.begin(), gaps.end());
  gaps.resize(gaps.size() - gaps.size() / 50);
  double sum = 0;
  for (const double gap : gaps) sum += gap;
  return gaps.empty() ? 0 : sum / static_cast<double>(gaps.size());
}

}  // namespace trident
