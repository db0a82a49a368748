// The CUDA implementation of kernels/*.h. Entries as in kernels/backend.h; they put kernels into
// the queue that the Access names and return. All results are the same from run to run.
#pragma once

#include "kernels/backend.h"

namespace trident::cuda {

std::string instructions();
// The bias of add_bias may be of another type than x and y.
#define TRIDENT_KERNEL(name, ...) void name(__VA_ARGS__);
#define TRIDENT_OPTIONAL_KERNEL TRIDENT_KERNEL
#include "kernels/kernel_list.inc"

}  // namespace trident::cuda
