#include "kernels/dropout.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/random.cuh"

namespace trident::cuda {
namespace {

template <class T>
struct DropoutAdd {
  const T *x, *residual;
  T* y;
  const std::int64_t* samples;
  const std::int32_t* places;
  Dropout dropout;
  std::int64_t columns, sequence, first_row;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = first_row + i / columns;
    const std::int64_t place = places ? places[row] : row % sequence;
    float a[N], factors[N];
    load(x + i, a);
    dropout.factors(static_cast<std::uint64_t>(samples[row / sequence]),
                    static_cast<std::uint64_t>(place * columns + i % columns), factors);
    if (residual) {
      float r[N];
      load(residual + i, r);
#pragma unroll
      for (int j = 0; j < N; ++j) a[j] = __fadd_rn(__fmul_rn(a[j], factors[j]), r[j]);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) a[j] *= factors[j];
    }
    store(y + i, a);
  }
};

template <class T>
struct PlainAdd {
  const T *x, *residual;
  T* y;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float a[N], r[N];
    load(x + i, a);
    load(residual + i, r);
#pragma unroll
    for (int j = 0; j < N; ++j) a[j] += r[j];
    store(y + i, a);
  }
};

}  // namespace

void dropout_add(const Access& access, Context& context, const DropoutAddArgs& args) {
  if (args.dropout.probability == 0 && !args.residual) return copy(access, context, args.x, args.y);
  const Queue& queue = queue_of(access);
  const std::int64_t n = args.x.numel(), columns = args.x.dim(1);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    constexpr int N = pack_size<T>;
    const T *const x = data<T>(access, args.x), *const residual = data<T>(access, args.residual);
    T* const y = data<T>(access, args.y);
    const bool wide = aligned(x, residual, y);
    if (args.dropout.probability == 0) {
      elementwise<N>(queue, n, wide, PlainAdd<T>{x, residual, y});
      return;
    }
    elementwise<N>(queue, n, wide && columns % N == 0,
                   DropoutAdd<T>{.x = x,
                                 .residual = residual,
                                 .y = y,
                                 .samples = data<std::int64_t>(access, args.dropout.samples),
                                 .places = data<std::int32_t>(access, args.places),
                                 .dropout = dropout_of(args.dropout),
                                 .columns = columns,
                                 .sequence = args.sequence,
                                 .first_row = args.first_row});
  });
}

}  // namespace trident::cuda
