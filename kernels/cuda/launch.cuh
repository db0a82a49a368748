// Starts a kernel on a queue. It is a plain function call, not the <<<>>> syntax, because
// tests/emulation also compiles the kernels with a C++ compiler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/cuda/scratch.h"

namespace trident::cuda {

// Does nothing if a dimension of `blocks` is 0. Throws Error if the launch fails.
template <class... Parameters, class... Arguments>
void start_configured(const Queue& queue, std::size_t shared_bytes, dim3 blocks, int threads,
                      void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  cudaLaunchConfig_t config{};
  config.dynamicSmemBytes = shared_bytes;
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = queue.stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        "a kernel's launch");
}
template <class... Parameters, class... Arguments>
void start(const Queue& queue, dim3 blocks, int threads, void (*kernel)(Parameters...),
           const Arguments&... arguments) {
  start_configured(queue, 0, blocks, threads, kernel, arguments...);
}

inline dim3 blocks_of(std::int64_t x, std::int64_t y = 1) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
}

}  // namespace trident::cuda
