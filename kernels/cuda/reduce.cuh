// Sums and maxima over a warp and over a block, in an order that the sizes alone decide.
#pragma once

#include <cuda_runtime.h>

namespace trident::cuda {

struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};
struct Maximum {  // NaNs are passed over
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

template <class Op, class T>
__device__ inline T reduce_warp(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// For every thread of a block of Threads, a multiple of 32. The block passes a barrier before and
// after, so calls may follow each other.
template <int Threads, class Op, class T>
__device__ inline T reduce_block(T x) {
  x = reduce_warp<Op>(x);
  if constexpr (Threads == 32) {
    return x;
  } else {
    constexpr int warps = Threads / 32;
    __shared__ T parts[warps];
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    T total = parts[0];
#pragma unroll
    for (int i = 1; i < warps; ++i) total = Op::of(total, parts[i]);
    return total;
  }
}

}  // namespace trident::cuda
