#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cuda_device.h"

namespace trident {
namespace {

constexpr const char* reason = "this program was built without CUDA";

[[noreturn]] void refuse() {
  throw Error(std::string("device cuda was asked for, but ") + reason);
}

}  // namespace

const Backend& cuda_backend() {
  refuse();
}

GpuSearch find_gpus() {
  return {.count = 0, .reason = reason};
}

GpuInfo gpu_info(int) {
  refuse();
}

bool connect_gpus() {
  return true;
}

std::unique_ptr<Device> make_cuda_device(int) {
  refuse();
}

}  // namespace trident
