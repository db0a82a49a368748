// Kernels that treat every element alike. A functor has `template <int N> __device__ void run(i)
// const`, which handles elements i … i + N. If it has `__device__ void begin()`, every thread calls
// that first.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/parts.cuh"

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

// A part of a launch. `wide`: its arrays allow 16-byte accesses.
template <class F>
struct ElementwisePart {
  F f;
  bool wide;
};
inline constexpr int part_turns = 8;  // elements or packs that a thread handles

template <int N, class F>
__device__ inline void run_part(const F& f, std::int64_t n, std::int64_t block) {
  const std::int64_t packs = n / N, begin = block * 256 * part_turns;
#pragma unroll 2
  for (int turn = 0; turn < part_turns; ++turn) {
    const std::int64_t i = begin + turn * 256 + static_cast<std::int64_t>(threadIdx.x);
    if (i < packs) f.template run<N>(i * N);
  }
  if (block == 0 && threadIdx.x < n % N) f.template run<1>(packs * N + threadIdx.x);
}
template <int N, class F>
__global__ void __launch_bounds__(256)
    elementwise_parts(const __grid_constant__ Parts<ElementwisePart<F>> parts) {
  const auto share = parts.of(blockIdx.x);
  const ElementwisePart<F>& part = parts.f[share.part];
  if (part.wide) {
    run_part<N>(part.f, parts.n[share.part], share.block);
  } else {
    run_part<1>(part.f, parts.n[share.part], share.block);
  }
}
// Handles the elements of several arrays, each with its own functor.
template <int N, class F>
class ElementwiseParts {
 public:
  explicit ElementwiseParts(const Queue& queue) : launcher_(queue, elementwise_parts<N, F>) {}
  void add(std::int64_t n, bool wide, const F& f) {
    const std::int64_t turns = std::max<std::int64_t>(n / (wide ? N : 1), 1);
    launcher_.add(n, ceil_div(turns, 256 * part_turns), {f, wide});
  }
  void run() { launcher_.run(); }

 private:
  PartsLauncher<ElementwisePart<F>> launcher_;
};

}  // namespace trident::cuda
