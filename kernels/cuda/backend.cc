#include "kernels/backend.h"

#include "kernels/cuda/kernels.h"

namespace trident {

const Backend& cuda_backend() {
  static constexpr Backend backend = {
      .instructions = cuda::instructions,
#define TRIDENT_KERNEL(name, ...) .name = cuda::name,
#define TRIDENT_OPTIONAL_KERNEL TRIDENT_KERNEL
#include "kernels/kernel_list.inc"
  };
  return backend;
}

}  // namespace trident
