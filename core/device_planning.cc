#include <atomic>
#include <cstdint>

#include "core/device.h"

namespace trident {
namespace {

class ImmediateStream final : public Stream {
 public:
  ImmediateStream() : Stream(true) {}
  void synchronize() override {}

 private:
  void push(Work work) override { work(Access{}); }
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
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }

 private:
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 46};
};

}  // namespace

std::unique_ptr<Device> make_planning_device() {
  return std::make_unique<PlanningDevice>();
}

}  // namespace trident
