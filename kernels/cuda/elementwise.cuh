// Kernels that treat every element alike. A functor has `template <int N> __device__ void run(i)
// const`, which handles elements i … i + N. If it has `__device__ void begin()`, every thread calls
// that first.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace trident::cuda {

template <int N, class F>
__global__ void __launch_bounds__(256) elementwise_kernel(std::int64_t n, F f) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = n / N;
  if constexpr (requires { f.begin(); }) f.begin();
  // The remainder comes first, so that no register holds `thread` over the loop.
  if (thread < n % N) f.template run<1>(packs * N + thread);
  for (std::int64_t i = thread; i < packs; i += threads) f.template run<N>(i * N);
}

// `wide`: all arrays allow 16-byte accesses at multiples of N elements.
template <int N, class F>
void elementwise(const Queue& queue, std::int64_t n, bool wide, const F& f) {
  constexpr std::int64_t most = 1 << 16;  // blocks, about 30 per multiprocessor; then a loop
  const auto blocks = [&](int each) {
    return blocks_of(std::min(most, ceil_div(std::max<std::int64_t>(n / each, n > 0), 256)));
  };
  if (wide) {
    start(queue, blocks(N), 256, elementwise_kernel<N, F>, n, f);
  } else {
    start(queue, blocks(1), 256, elementwise_kernel<1, F>, n, f);
  }
}

}  // namespace trident::cuda
