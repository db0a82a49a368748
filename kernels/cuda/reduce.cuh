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
