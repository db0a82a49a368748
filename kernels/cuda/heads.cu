#include "kernels/heads.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

template <class T>
struct CopyParts {
  const T* from;
  T* to;
  std::int64_t row_from, row_to, stride_from, stride_to, heads, dim;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i % dim, head = i / dim % heads, t = i / dim / heads;
    put(to + t * row_to + head * stride_to + at,
        fetch<N>(from + t * row_from + head * stride_from + at));
  }
};

template <class T>
struct SumParts {
  const T* from;
  T* to;
  std::int64_t row_from, row_to, stride, heads, dim;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i % dim, t = i / dim;
    float total[N] = {};
    for (std::int64_t head = 0; head < heads; ++head) {
      float part[N];
      load(from + t * row_from + head * stride + at, part);
#pragma unroll
      for (int j = 0; j < N; ++j) total[j] += part[j];
    }
    store(to + t * row_to + at, total);
  }
};

// Whether packs of N elements lie at multiples of their size.
template <int N, class T>
bool wide(const T* from, const T* to, const HeadPartsArgs& args) {
  const auto whole = [](std::int64_t n) { return n % N == 0; };
  return aligned(from, to) && whole(args.dim) && whole(args.from.stride) && whole(args.to.stride) &&
         whole(args.from.rows.dim(1)) && whole(args.to.rows.dim(1));
}

}  // namespace

void copy_heads(const Access& access, Context&, const HeadPartsArgs& args) {
  by_dtype(args.from.rows.dtype(), [&]<class T>(T*) {
    const CopyParts<T> f{.from = data<T>(access, args.from.rows) + args.from.begin,
                         .to = data<T>(access, args.to.rows) + args.to.begin,
                         .row_from = args.from.rows.dim(1),
                         .row_to = args.to.rows.dim(1),
                         .stride_from = args.from.stride,
                         .stride_to = args.to.stride,
                         .heads = args.heads,
                         .dim = args.dim};
    constexpr int N = pack_size<T>;
    elementwise<N>(queue_of(access), args.from.rows.dim(0) * args.heads * args.dim,
                   wide<N>(f.from, f.to, args), f);
  });
}

void sum_heads(const Access& access, Context&, const HeadPartsArgs& args) {
  by_dtype(args.from.rows.dtype(), [&]<class T>(T*) {
    const SumParts<T> f{.from = data<T>(access, args.from.rows) + args.from.begin,
                        .to = data<T>(access, args.to.rows) + args.to.begin,
                        .row_from = args.from.rows.dim(1),
                        .row_to = args.to.rows.dim(1),
                        .stride = args.from.stride,
                        .heads = args.heads,
                        .dim = args.dim};
    constexpr int N = pack_size<T>;
    elementwise<N>(queue_of(access), args.from.rows.dim(0) * args.dim, wide<N>(f.from, f.to, args),
                   f);
  });
}

}  // namespace trident::cuda
