// Sums and maxima over a warp and over a block, in an order that the sizes alone determine.
#pragma once

#include <cuda_runtime.h>

namespace trident::cuda {

struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};
struct Maximum {  // ignores NaNs
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

template <class Op, class T>
__device__ inline T reduce_warp(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// The sum of x over the lanes of a warp up to this one, its own included.
__device__ inline int sum_upto(int x) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_sync(0xffffffffu, x, lane >= step ? lane - step : lane);
    if (lane >= step) x += other;
  }
  return x;
}

// How many threads of a block are `here`: up to this one, its own included, and in all. Calls may
// follow each other.
struct Ranked {
  int upto, all;
};
template <int Threads>
__device__ inline Ranked rank_in_block(bool here) {
  constexpr int warps = Threads / 32;
  __shared__ int counts[warps];
  const int warp = static_cast<int>(threadIdx.x / 32);
  Ranked ranked{sum_upto(here ? 1 : 0), 0};
  __syncthreads();
  if (threadIdx.x % 32 == 31) counts[warp] = ranked.upto;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    if (w < warp) ranked.upto += counts[w];
    ranked.all += counts[w];
  }
  return ranked;
}

// Reduces each of x over a block of Threads threads, a multiple of 32; every thread gets the
// result. There is a barrier before and after shared memory is written, so calls may follow each
// other.
template <int Threads, class Op, int K, class T>
__device__ inline void reduce_block(T (&x)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = reduce_warp<Op>(x[k]);
  if constexpr (Threads > 32) {
    constexpr int warps = Threads / 32;
    __shared__ T parts[K][warps];
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int k = 0; k < K; ++k) parts[k][threadIdx.x / 32] = x[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) {
      x[k] = parts[k][0];
#pragma unroll
      for (int i = 1; i < warps; ++i) x[k] = Op::of(x[k], parts[k][i]);
    }
  }
}
template <int Threads, class Op, class T>
__device__ inline T reduce_block(T x) {
  T one[1] = {x};
  reduce_block<Threads, Op>(one);
  return one[0];
}

}  // namespace trident::cuda
