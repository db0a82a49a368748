#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/device.h"

namespace trident {
namespace {

// Work would touch memory that is not there; what kernels reserve is reserved at their launch.
class DiscardingStream final : public Stream {
 public:
  DiscardingStream() : Stream(false) {}
  void synchronize() override {}

 private:
  void push(Work) override {}
};

class PlanningDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::planning; }
  std::string_view name() const override { return "planning"; }
  void* allocate(std::size_t bytes) override {
    const std::uintptr_t size = (bytes + 63) / 64 * 64 + 64;
    return reinterpret_cast<void*>(next_.fetch_add(size, std::memory_order_relaxed));
  }
  void deallocate(void*, std::size_t) override {}
  Segment allocate_segment(std::size_t at_least) override {
    const std::size_t bytes = std::max(at_least, std::size_t{1} << 48);
    return {allocate(bytes), bytes};
  }
  bool release(void*, std::size_t) override { return true; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<DiscardingStream>(); }

 private:
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 46};
};

}  // namespace

std::unique_ptr<Device> make_planning_device() {
  return std::make_unique<PlanningDevice>();
}

}  // namespace trident
