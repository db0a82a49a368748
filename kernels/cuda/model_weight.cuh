// The optional 16-bit copy of the weights, which an optimizer update rewrites.
#pragma once

#include "core/tensor.h"
#include "kernels/by_dtype.h"
#include "kernels/cuda/pack.cuh"

namespace trident::cuda {

struct NoModelWeight {
  using Element = float;
  float* to = nullptr;
  template <int N>
  __device__ void put(std::int64_t, const float (&)[N]) const {}
};
template <class T>
struct ModelWeight {
  using Element = T;
  T* to;
  template <int N>
  __device__ void put(std::int64_t i, const float (&w)[N]) const {
    store(to + i, w);
  }
};

// Calls f with the ModelWeight of the tensor, or with NoModelWeight if the tensor is undefined.
template <class F>
void by_model_weight(const Access& access, const Tensor& tensor, F&& f) {
  if (!tensor) return f(NoModelWeight{});
  by_dtype(tensor.dtype(), [&]<class T>(T*) { f(ModelWeight<T>{data<T>(access, tensor)}); });
}

}  // namespace trident::cuda
