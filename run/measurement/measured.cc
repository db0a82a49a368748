#include "run/measurement/measured.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/process/process.h"
#include "parallel/transport/nccl/nccl.h"

namespace trident::bench {

std::string device_name(const Devices& devices, std::int64_t threads) {
  if (!devices.gpu().empty()) return devices.gpu();
  return fmt::format("{}, {} thread{}", processor_name(), threads, threads == 1 ? "" : "s");
}

void need_same_device(const Machine& known, const std::string& device, const std::string& place) {
  if (known.device.name == device) return;
  throw RequestError(
      fmt::format("{}: the file is of \"{}\", measured here is \"{}\"; give another file", place,
                  known.device.name, device));
}

double seconds_between(const ClockReading& from, const ClockReading& to) {
  return static_cast<double>(to.wall_ns - from.wall_ns) * 1e-9;
}

Json versions_json(const Devices& devices) {
  Json versions{{"trident", TRIDENT_VERSION}, {"compiler", __VERSION__}};
  for (const auto& [name, version] : devices.versions()) versions[name] = version;
  if (!devices.versions().empty()) versions["nccl"] = nccl_version();
  return versions;
}

}  // namespace trident::bench
