// The CUDA implementation of kernels/*.h, with the entries of kernels/backend.h. Called inside
// stream work: each function enqueues GPU kernels on the queue of the Access and returns without
// waiting. With KernelOptions::deterministic all results are the same from run to run. Without it,
// gemm times the algorithms at the first product of a shape and waits for the queue. Throws Error
// if the CUDA runtime or a library fails.
#pragma once

#include "kernels/backend.h"

namespace trident::cuda {

std::string instructions();
// The bias of add_bias may be of another type than x and y.
#define TRIDENT_KERNEL(name, ...) void name(__VA_ARGS__);
#define TRIDENT_OPTIONAL_KERNEL TRIDENT_KERNEL
#include "kernels/kernel_list.inc"

}  // namespace trident::cuda
