// The devices that tests run on.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/device.h"
#include "kernels/cuda_device.h"

namespace trident {

enum class On { cpu, guarded, cuda };

inline const char* name_of(On on) {
  return on == On::cpu ? "cpu" : on == On::guarded ? "guarded" : "cuda";
}

inline std::unique_ptr<Device> make_device(On on,
                                           std::size_t guarded_bytes = std::size_t{256} << 20) {
  switch (on) {
    case On::cpu:
      return make_cpu_device();
    case On::guarded:
      return make_guarded_device(guarded_bytes);
    case On::cuda:
      return make_cuda_device(0);
  }
  return nullptr;
}

// The device of the tests of everything above the kernels. TRIDENT_TEST_DEVICE=cuda selects a GPU.
inline On usual_device() {
  const char* const name = std::getenv("TRIDENT_TEST_DEVICE");
  if (name == nullptr || std::string(name) == "cpu") return On::cpu;
  if (std::string(name) == "cuda") return On::cuda;
  throw std::runtime_error(std::string("TRIDENT_TEST_DEVICE: got ") + name + ", need cpu or cuda");
}

}  // namespace trident
