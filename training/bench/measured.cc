#include "training/bench/measured.h"

#include <algorithm>
#include <cstddef>

#include "parallel/transport/nccl/nccl.h"

namespace trident::bench {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_between(const ClockReading& from, const ClockReading& to) {
  return static_cast<double>(to.wall_ns - from.wall_ns) * 1e-9;
}

Json versions_json(const Devices& devices) {
  Json versions = Json::object();
  for (const auto& [name, version] : devices.versions()) versions[name] = version;
  if (!devices.versions().empty()) versions["nccl"] = nccl_version();
  return versions;
}

}  // namespace trident::bench
