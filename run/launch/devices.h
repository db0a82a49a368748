// The devices on which the ranks of this process compute.
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
  // What runtime.device says. Throws RequestError, naming it, where this machine has no such
  // device. For ranks that reach each other's memory (the local transport) one GPU where several
  // can't.
  explicit Devices(const Config& config);
  // "cpu" or "cuda"; `place` is where that was said.
  Devices(const std::string& device, const std::string& place);

  // Of a rank, counted on this machine: GPUs in turn.
  Device& of(int local_rank) const;
  // GPUs, or 1 for the CPU.
  int count() const { return static_cast<int>(devices_.size()); }
  // Bytes of GPU memory for each of so many ranks of this machine; nothing for the CPU.
  std::optional<std::int64_t> memory(std::int64_t ranks) const;
  // For a run's header: "cpu, avx512 bf16", "2 x NVIDIA H200 (sm_90, 139.8 GiB), driver 13.0, …".
  const std::string& text() const { return text_; }
  // FLOP/s of one GPU's products in this precision, dense, as its maker says; nothing for the CPU
  // or a GPU that is not in the table.
  std::optional<double> peak(const PrecisionConfig&) const;
  // A GPU's name; "" for the CPU.
  const std::string& gpu() const { return name_; }
  // Of driver, runtime and libraries, by name; none for the CPU.
  const std::vector<std::pair<std::string, std::string>>& versions() const { return versions_; }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::string name_, text_;
  std::vector<std::pair<std::string, std::string>> versions_;
  std::int64_t memory_ = 0;  // of a GPU
};

}  // namespace trident
