#include "run/processes/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "kernels/backend.h"
#include "kernels/cuda_device.h"
#include "settings/constraints.h"

namespace trident {
namespace {

// Dense TFLOP/s with fp32 accumulation, from NVIDIA's data sheets. The first entry whose name is
// part of the device's name applies. The rate of a GPU without an entry is measured.
struct Peak {
  std::string_view name;
  double half, tf32, fp32;  // bf16, fp16 and TF32 on tensor cores; fp32 without them
};
constexpr Peak peaks[] = {
    {"H200 NVL", 835, 417.5, 60}, {"H200", 989, 494.5, 67}, {"H100 PCIe", 756, 378, 51},
    {"H100 NVL", 835, 417.5, 60}, {"H100", 989, 494.5, 67}, {"A100", 312, 156, 19.5},
};

}  // namespace

Devices::Devices(const std::string& device, const std::string& place) {
  if (device == "cpu") {
    devices_.push_back(make_cpu_device());
    text_ = "cpu, " + cpu_backend().instructions();
    return;
  }
  const GpuSearch found = find_gpus();
  if (found.count == 0) {
    throw RequestError(place + ": \"" + device + "\" was asked for, but " + found.reason +
                       "; use \"cpu\" or \"auto\"");
  }
  for (int i = 0; i < found.count; ++i) devices_.push_back(make_cuda_device(i));
  const GpuInfo info = gpu_info(0);
  versions_ = info.versions;
  std::string versions;
  for (const auto& [name, version] : versions_) {
    if (!version.empty()) versions += fmt::format(", {} {}", name, version);
  }
  name_ = info.name;
  memory_ = static_cast<std::int64_t>(info.memory_bytes);
  text_ = fmt::format(
      "{}{} (sm_{}{}, {}){}", found.count > 1 ? fmt::format("{} x ", found.count) : "", info.name,
      info.major, info.minor, bytes_text(static_cast<double>(info.memory_bytes)), versions);
}

Devices::Devices(const Config& config) : Devices(config.runtime.device, "config: /runtime/device") {
  const TransportConstraints& transport = transport_constraints(config);
  const bool shared = transport.gpu && !transport.gpu_for_each_rank && config.world_size() > 1;
  if (!shared || count() == 1 || connect_gpus()) return;
  devices_.resize(1);
  text_ += "; on the first GPU alone, as the GPUs can't access each other's memory";
}

Device& Devices::of(int local_rank) const {
  return *devices_[static_cast<std::size_t>(local_rank) % devices_.size()];
}

std::optional<double> Devices::peak(const PrecisionConfig& precision) const {
  for (const Peak& p : peaks) {
    if (name_.find(p.name) == std::string::npos) continue;
    return 1e12 * (precision.dtype != "fp32" ? p.half : precision.tf32 ? p.tf32 : p.fp32);
  }
  return std::nullopt;
}

std::optional<std::int64_t> Devices::memory(std::int64_t ranks) const {
  if (memory_ == 0) return std::nullopt;
  return memory_ / ((ranks + count() - 1) / count());
}

}  // namespace trident
