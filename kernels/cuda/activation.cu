#include "kernels/activation.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/kernels.h"

namespace trident::cuda {
namespace {

template <class T>
struct GeluForward {
  const T* x;
  T* y;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N];
    load(x + i, a);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] = gelu<T>(a[j]);
    store(y + i, a);
  }
};

template <class T>
struct GeluBackward {
  const T *x, *grad_y;
  T* grad_x;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], g[N];
    load(x + i, a);
    load(grad_y + i, g);
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] *= gelu_derivative<T>(a[j]);
    store(grad_x + i, g);
  }
};

// Elements are counted in y. A row of x holds the gate, then the up projection.
template <class T>
struct SwigluForward {
  const T* x;
  T* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const T* const gate = x + i / columns * 2 * columns + i % columns;
    float g[N], u[N];
    load(gate, g);
    load(gate + columns, u);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] *= g[j] * sigmoid_of_negated<T>(-g[j]).value;
    store(y + i, u);
  }
};

template <class T>
struct SwigluBackward {
  const T *x, *grad_y;
  T* grad_x;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i / columns * 2 * columns + i % columns;
    float g[N], u[N], d[N];
    load(x + at, g);
    load(x + at + columns, u);
    load(grad_y + i, d);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Sigmoid s = sigmoid_of_negated<T>(-g[j]);
      const float silu = g[j] * s.value;
      const float slope = fmaf(silu, s.complement, s.value);
      g[j] = d[j] * u[j] * slope;
      u[j] = d[j] * silu;
    }
    store(grad_x + at, g);
    store(grad_x + at + columns, u);
  }
};

}  // namespace

void gelu_forward(const Access& access, Context&, const Tensor& x, const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const GeluForward<T> f{data<T>(access, x), data<T>(access, y)};
    elementwise<pack_size<T>>(queue_of(access), x.numel(), aligned(f.x, f.y), f);
  });
}

void gelu_backward(const Access& access, Context&, const Tensor& x, const Tensor& grad_y,
                   const Tensor& grad_x) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const GeluBackward<T> f{data<T>(access, x), data<T>(access, grad_y), data<T>(access, grad_x)};
    elementwise<pack_size<T>>(queue_of(access), x.numel(), aligned(f.x, f.grad_y, f.grad_x), f);
  });
}

void swiglu_forward(const Access& access, Context&, const Tensor& x, const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const SwigluForward<T> f{data<T>(access, x), data<T>(access, y), y.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), y.numel(),
                              aligned(f.x, f.y) && y.dim(1) % pack_size<T> == 0, f);
  });
}

void swiglu_backward(const Access& access, Context&, const Tensor& x, const Tensor& grad_y,
                     const Tensor& grad_x) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const SwigluBackward<T> f{data<T>(access, x), data<T>(access, grad_y), data<T>(access, grad_x),
                              grad_y.dim(1)};
    elementwise<pack_size<T>>(queue_of(access), grad_y.numel(),
                              aligned(f.x, f.grad_y, f.grad_x) && grad_y.dim(1) % pack_size<T> == 0,
                              f);
  });
}

}  // namespace trident::cuda
