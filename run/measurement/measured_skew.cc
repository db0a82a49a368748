#include "run/measurement/measured_skew.h"

#include <algorithm>
#include <utility>

#include "parallel/topology.h"

namespace trident {

void MeasuredSkew::take(const std::vector<const OperationTrace*>& traces) {
  const OperationTrace& first = *traces.front();
  for (const OperationTrace* trace : traces) {
    if (trace->operations().size() != first.operations().size()) return;
  }
  std::vector<double> since(traces.size());
  for (std::size_t at = 0; at < first.operations().size(); ++at) {
    const TracedOperation& operation = first.operations()[at];
    if (operation.group < 0) {
      for (std::size_t i = 0; i < traces.size(); ++i) {
        since[i] += traces[i]->operations()[at].seconds;
      }
      continue;
    }
    const std::string& group = first.groups()[static_cast<std::size_t>(operation.group)].name;
    if (operation.asynchronous || !is_within_layers(traffic_of(group))) continue;
    last_ += *std::max_element(since.begin(), since.end());
    for (double& seconds : since) {
      mean_ += std::exchange(seconds, 0.0) / static_cast<double>(since.size());
    }
  }
}

std::optional<double> MeasuredSkew::part() const {
  if (mean_ <= 0) return std::nullopt;
  return std::clamp(last_ / mean_ - 1, 0.0, 1.0);
}

}  // namespace trident
