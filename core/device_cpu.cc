#include <cstdlib>

#include "core/device.h"
#include "core/error.h"

namespace trident {
namespace {

class ImmediateStream final : public Stream {
 public:
  ImmediateStream() : Stream(true) {}
  void synchronize() override {}

 private:
  void push(Work work) override { work(Access{}); }
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "cpu"; }
  void* allocate(std::size_t bytes) override {
    void* address = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0));
    if (address == nullptr) {
      throw Error("cpu device: no memory for an allocation of " + std::to_string(bytes) + " bytes");
    }
    return address;
  }
  void deallocate(void* address, std::size_t) override { std::free(address); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace trident
