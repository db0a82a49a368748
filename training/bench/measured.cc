#include "training/bench/measured.h"

#include "parallel/transport/nccl/nccl.h"

namespace trident::bench {

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
