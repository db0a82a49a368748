// Shared memory of a size that is chosen at the launch.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace trident::cuda {

// The calling block's dynamic shared memory, 16-byte aligned.
#ifdef __CUDACC__
__device__ inline uint4* dynamic_shared() {
  extern __shared__ uint4 shared_packs[];
  return shared_packs;
}
#else
inline uint4* dynamic_shared() {
  return static_cast<uint4*>(emulation::dynamic_shared());
}
#endif

// The bytes that each of `blocks` blocks on a multiprocessor of the current device may have. Of a
// block's share, CUDA reserves 1 KiB, and 1 KiB is left for the kernel's own variables.
inline std::int64_t shared_bytes_each(int blocks) {
  int device = 0, most = 0, all = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
        "cudaDeviceGetAttribute");
  return std::min(most, all / blocks) - 2048;
}

// As start(), with `bytes` of dynamic shared memory for each block, at most `most`. All calls for a
// kernel give the same `most`: it becomes an attribute of the kernel on the device, which threads
// share.
template <class... Parameters, class... Arguments>
void start_with_shared(const Queue& queue, std::int64_t bytes, std::int64_t most, dim3 blocks,
                       int threads, void (*kernel)(Parameters...), const Arguments&... arguments) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)),
        "cudaFuncSetAttribute");
  start_configured(queue, static_cast<std::size_t>(bytes), blocks, threads, kernel, arguments...);
}

}  // namespace trident::cuda
