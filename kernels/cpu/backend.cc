#include "kernels/backend.h"

#include "kernels/cpu/kernels.h"

namespace trident {

const Backend& cpu_backend() {
  static constexpr Backend backend = {
      .instructions = cpu::instructions,
#define TRIDENT_KERNEL(name, ...) .name = cpu::name,
#define TRIDENT_OPTIONAL_KERNEL(name, ...) .name = nullptr,
#include "kernels/kernel_list.inc"
  };
  return backend;
}

}  // namespace trident
