#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/device.h"

namespace trident {
namespace {

// Discards all work, which would touch memory that doesn't exist. Kernels reserve their workspace
// at launch.
class DiscardingStream final : public Stream {
 public:
  DiscardingStream() : Stream(false) {}
  void synchronize() override {}

 private:
  void push(Work) override {}
};

class PlanningDevice final : public Device {
 public:
  explicit PlanningDevice(DeviceKind kernels) : kernels_(kernels) {}
  DeviceKind kind() const override { return DeviceKind::planning; }
  DeviceKind kernels() const override { return kernels_; }
  std::string_view name() const override { return "planning"; }
  bool has_memory() const override { return false; }
  void* allocate(std::size_t bytes) override {
    const std::uintptr_t size = (bytes + 255) / 256 * 256 + 256;
    return reinterpret_cast<void*>(next_.fetch_add(size, std::memory_order_relaxed));
  }
  void deallocate(void*, std::size_t) override {}
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<DiscardingStream>(); }

 private:
  DeviceKind kernels_;
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 46};
};

}  // namespace

std::unique_ptr<Device> make_planning_device(DeviceKind kernels) {
  return std::make_unique<PlanningDevice>(kernels);
}

}  // namespace trident
