// The devices on which the ranks of this process compute: the CPU, or the GPUs that it sees.
//
// A process makes one object; its ranks, which may be threads, share it. Nothing here is
// collective.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "settings/config.h"

namespace trident {

class Devices {
 public:
  // The devices that runtime.device names. Throws RequestError that names the key if this machine
  // has no device of that kind. The ranks of the local transport access each other's memory; if the
  // GPUs can't do that, only the first GPU is used.
  explicit Devices(const Config& config);
  // `device` is "cpu" or "cuda"; errors begin with `place`, the option or key that named it.
  Devices(const std::string& device, const std::string& place);

  // The device of a rank by its number on this machine; ranks take the GPUs in turn.
  Device& of(int local_rank) const;
  // The number of GPUs; 1 for the CPU.
  int count() const { return static_cast<int>(devices_.size()); }
  // Bytes of GPU memory for each rank if `ranks` of them run on this machine; empty for the CPU.
  std::optional<std::int64_t> memory(std::int64_t ranks) const;
  // The text for a run's header: "cpu, avx512 bf16", "2 x NVIDIA H200 (sm_90, 139.8 GiB),
  // driver 13.0, …".
  const std::string& text() const { return text_; }
  // The dense FLOP/s of one GPU's products in this precision, from its data sheet; empty for the
  // CPU or a GPU that is not in the table.
  std::optional<double> peak(const PrecisionConfig&) const;
  // The name of the GPUs; "" for the CPU.
  const std::string& gpu() const { return name_; }
  // The versions of driver, runtime and libraries, by name; empty for the CPU.
  const std::vector<std::pair<std::string, std::string>>& versions() const { return versions_; }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::string name_, text_;
  std::vector<std::pair<std::string, std::string>> versions_;
  std::int64_t memory_ = 0;  // bytes of one GPU
};

}  // namespace trident
