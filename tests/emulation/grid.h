#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace emulation {

// Runs `body` once for each thread of each block, block after block, in the calling thread.
// `shared_bytes` is the dynamic shared memory of a block. Throws if a block can't end.
void run_grid(dim3 blocks, dim3 threads, std::size_t shared_bytes,
              const std::function<void()>& body);

}  // namespace emulation
