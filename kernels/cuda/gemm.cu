#include "kernels/gemm.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/state.h"
#include "kernels/gemm_in_steps.h"

namespace trident::cuda {
namespace {

template <class T, class U>
struct AddBias {
  const T* bias;
  U* y;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], b[N];
    load(y + i, a);
    load(bias + i % columns, b);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] += b[j];
    store(y + i, a);
  }
};

}  // namespace

void add_bias_to(const Access& access, const Tensor& bias, const Tensor& y) {
  by_dtype(bias.dtype(), [&]<class T>(T*) {
    by_dtype(y.dtype(), [&]<class U>(U*) {
      constexpr int N = pack_size_of<T, U>;
      const AddBias<T, U> f{data<T>(access, bias), data<U>(access, y), y.dim(1)};
      elementwise<N>(queue_of(access), y.numel(), aligned(f.bias, f.y) && f.columns % N == 0, f);
    });
  });
}

void gemm(const Access& access, Context& context, const GemmArgs& args) {
  if (args.c.numel() == 0) return;
  Products& products = *state_of(context).products;
  const Queue& queue = queue_of(access);
  if (!args.alone() && products.run_fused(queue, access, context, args)) return;
  gemm_in_steps(cuda_backend(), access, context, args, [&](const GemmArgs& alone) {
    products.run(queue, access, context, alone);
  });
}

}  // namespace trident::cuda
