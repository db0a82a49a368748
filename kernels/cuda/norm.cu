#include "kernels/norm.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

// Rows of `columns` elements inside a tensor: `heads` of them side by side in each of its rows,
// which are `stride` elements long. One head and stride = columns: the tensor's own rows. Rows are
// counted head by head, as their statistics lie.
template <class T>
struct Place {
  T* first;
  std::int64_t stride;
  __device__ T* of(std::int64_t row, std::int64_t per_head, std::int64_t columns) const {
    if (per_head == 0) return first + row * columns;
    return first + row % per_head * stride + row / per_head * columns;
  }
};

template <class T>
struct Forward {
  Place<const T> x;
  const T *weight, *bias = nullptr;  // bias null: RMSNorm
  Place<T> y;
  float *mean = nullptr, *rstd;
  std::int64_t rows, columns;
  std::int64_t per_head = 0;  // rows of one head; 0: the rows are those of the tensors
  float inverse, epsilon;     // inverse: 1 / columns
};
template <class T>
struct Backward {
  Place<const T> grad_y, x;
  const T *weight, *residual = nullptr;
  Place<T> grad_x;
  const float *mean = nullptr, *rstd;  // mean null: RMSNorm
  std::int64_t rows, columns, per_head = 0;
  float inverse;
};

// A row belongs to Lanes threads; each has P packs of N elements. A thread fetches all packs before
// the first sum and keeps them packed in registers. Rows that do not fit (P = 0) are fetched again
// in each pass, a section of 4 packs at a time.
template <int Lanes, int P, int N>
struct Row {
  static constexpr bool kept = P > 0;
  static constexpr int packs = kept ? P : 4;
  int lane, columns;

  // Calls f(begin) for each section.
  template <class F>
  __device__ void each(F f) const {
    if constexpr (kept) {
      f(0);
    } else {
      for (int begin = 0; begin < columns; begin += packs * Lanes * N) f(begin);
    }
  }
  __device__ int column(int begin, int p) const { return begin + (p * Lanes + lane) * N; }
  // by_row() chooses P so that in a wide row only the last pack may lie beyond the end.
  __device__ bool has(int begin, int p) const {
    return (kept && N > 1 && p + 1 < P) || column(begin, p) < columns;
  }
  // Fetches the packs of a section, with zeros beyond the end of the row.
  template <class T>
  __device__ void take(const T* from, int begin, Packed<N, T> (&to)[packs]) const {
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      to[p] = Packed<N, T>{};
      if (has(begin, p)) to[p] = fetch<N>(from + column(begin, p));
    }
  }
};

template <int Lanes>
inline constexpr int block_threads = Lanes == 32 ? 128 : Lanes;  // a warp or a block handles a row
// The number of blocks that must fit on a multiprocessor at once, so that `warps` warps run there.
template <int Lanes, int warps>
inline constexpr int blocks_at_once = warps * 32 / block_threads<Lanes>;
// On sm_100 more warps would keep registers of wide rows in local memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
template <int P>
inline constexpr int backward_warps = P == 0   ? 16
                                      : P == 4 ? 20
                                               : 24;
#else
template <int P>
inline constexpr int backward_warps = P == 4 ? 20 : 24;
#endif

template <int Lanes>
__device__ inline std::int64_t row_of_thread() {
  return Lanes == 32 ? static_cast<std::int64_t>(blockIdx.x) * 4 + threadIdx.x / 32
                     : static_cast<std::int64_t>(blockIdx.x);
}

template <int Lanes, int P, int N, class T>
__global__ void __launch_bounds__(block_threads<Lanes>, blocks_at_once<Lanes, P == 4 ? 20 : 24>)
    forward_kernel(Forward<T> a) {
  const std::int64_t at = row_of_thread<Lanes>();
  if (at >= a.rows) return;
  using Layout = Row<Lanes, P, N>;
  const Layout row{static_cast<int>(threadIdx.x % Lanes), static_cast<int>(a.columns)};
  const T* const from = a.x.of(at, a.per_head, a.columns);
  T* const to = a.y.of(at, a.per_head, a.columns);
  Packed<N, T> x[Layout::packs], weight[Layout::packs], bias[Layout::packs];
  // Without a bias the weight replaces it, times 0. A branch around the loads of the bias, or on
  // the bias later, would keep these loads from overlapping with the others.
  const float with_bias = a.bias ? 1.0f : 0.0f;
  const auto take_weights = [&](int begin) {
    row.take(a.weight, begin, weight);
    row.take(a.bias ? a.bias : a.weight, begin, bias);
  };
  if constexpr (Layout::kept) {
    row.take(from, 0, x);
    take_weights(0);
  }
  float center = 0;
  if (a.bias) {
    float sum = 0;
    row.each([&](int begin) {
      if constexpr (!Layout::kept) row.take(from, begin, x);
#pragma unroll
      for (int p = 0; p < Layout::packs; ++p) {
        float v[N], part = 0;
        unpack(x[p], v);
#pragma unroll
        for (int j = 0; j < N; ++j) part += v[j];
        sum += part;
      }
    });
    center = reduce_block<Lanes, Sum>(sum) * a.inverse;
  }
  float squares = 0;
  row.each([&](int begin) {
    if constexpr (!Layout::kept) row.take(from, begin, x);
#pragma unroll
    for (int p = 0; p < Layout::packs; ++p) {
      float v[N], part = 0;
      unpack(x[p], v);
#pragma unroll
      for (int j = 0; j < N; ++j) part = fmaf(v[j] - center, v[j] - center, part);
      squares += row.has(begin, p) ? part : 0.0f;
    }
  });
  const float scale = rsqrtf(fmaf(reduce_block<Lanes, Sum>(squares), a.inverse, a.epsilon));
  row.each([&](int begin) {
    if constexpr (!Layout::kept) {
      row.take(from, begin, x);
      take_weights(begin);
    }
#pragma unroll
    for (int p = 0; p < Layout::packs; ++p) {
      float v[N], w[N], b[N];
      unpack(x[p], v);
      unpack(weight[p], w);
      unpack(bias[p], b);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf((v[j] - center) * scale, w[j], with_bias * b[j]);
      if (row.has(begin, p)) store(to + row.column(begin, p), v);
    }
  });
  if (row.lane == 0) {
    if (a.mean) a.mean[at] = center;
    a.rstd[at] = scale;
  }
}

// grad_x = rstd · (g - mean(g) - h·mean(g·h)) with g = grad_y·weight and h the normalised row.
// RMSNorm omits mean(g).
template <int Lanes, int P, int N, class T>
__global__ void __launch_bounds__(block_threads<Lanes>, blocks_at_once<Lanes, backward_warps<P>>)
    backward_kernel(Backward<T> a) {
  const std::int64_t at = row_of_thread<Lanes>();
  if (at >= a.rows) return;
  using Layout = Row<Lanes, P, N>;
  const Layout row{static_cast<int>(threadIdx.x % Lanes), static_cast<int>(a.columns)};
  const T *const from_grad = a.grad_y.of(at, a.per_head, a.columns), *const from_x = a.x.of(
                                                                         at, a.per_head, a.columns);
  T* const to = a.grad_x.of(at, a.per_head, a.columns);
  Packed<N, T> grad_y[Layout::packs], x[Layout::packs], weight[Layout::packs],
      residual[Layout::packs];
  const auto take = [&](int begin) {
    row.take(from_grad, begin, grad_y);
    row.take(from_x, begin, x);
    row.take(a.weight, begin, weight);
  };
  // Handled like the bias of the forward pass.
  const float with_residual = a.residual ? 1.0f : 0.0f;
  const auto take_residual = [&](int begin) {
    row.take(a.residual ? a.residual + at * a.columns : from_grad, begin, residual);
  };
  if constexpr (Layout::kept) {
    take(0);
    take_residual(0);
  }
  const float center = a.mean ? a.mean[at] : 0.0f, rstd = a.rstd[at];
  const auto terms = [&](int p, float(&g)[N], float(&h)[N]) {
    float w[N];
    unpack(grad_y[p], g);
    unpack(x[p], h);
    unpack(weight[p], w);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      g[j] *= w[j];
      h[j] = (h[j] - center) * rstd;
    }
  };
  float sums[2] = {};  // sums of g and of g·h; g is 0 beyond the row
  row.each([&](int begin) {
    if constexpr (!Layout::kept) take(begin);
#pragma unroll
    for (int p = 0; p < Layout::packs; ++p) {
      float g[N], h[N], parts[2] = {};
      terms(p, g, h);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        parts[0] += g[j];
        parts[1] = fmaf(g[j], h[j], parts[1]);
      }
      sums[0] += parts[0];
      sums[1] += parts[1];
    }
  });
  reduce_block<Lanes, Sum>(sums);
  const float along_one = a.mean ? a.inverse * sums[0] : 0.0f, along_row = a.inverse * sums[1];
  row.each([&](int begin) {
    if constexpr (!Layout::kept) {
      take(begin);
      take_residual(begin);
    }
#pragma unroll
    for (int p = 0; p < Layout::packs; ++p) {
      float g[N], h[N], r[N];
      terms(p, g, h);
      unpack(residual[p], r);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        r[j] = fmaf(rstd, fmaf(-h[j], along_row, g[j]) - along_one, with_residual * r[j]);
      }
      if (row.has(begin, p)) store(to + row.column(begin, p), r);
    }
  });
}

// Calls f<Lanes, P, N> with the layout for rows of `columns` elements. P is at most 4, so that all
// operands of the backward pass fit in registers.
template <class T, class F>
void by_row(std::int64_t columns, bool wide, const F& f) {
  constexpr int N = pack_size<T>;
  if (!wide || columns % N != 0) {
    if (columns <= 32 * 4) return f.template operator()<32, 4, 1>();
    if (columns <= 128 * 4) return f.template operator()<128, 4, 1>();
    return f.template operator()<256, 0, 1>();
  }
  const std::int64_t packs = columns / N;
  if (packs <= 32 * 1) return f.template operator()<32, 1, N>();
  if (packs <= 32 * 2) return f.template operator()<32, 2, N>();
  if (packs <= 32 * 3) return f.template operator()<32, 3, N>();
  if (packs <= 32 * 4) return f.template operator()<32, 4, N>();
  if (packs <= 128 * 2) return f.template operator()<128, 2, N>();
  if (packs <= 128 * 3) return f.template operator()<128, 3, N>();
  if (packs <= 128 * 4) return f.template operator()<128, 4, N>();
  if (packs <= 256 * 3) return f.template operator()<256, 3, N>();
  if (packs <= 256 * 4) return f.template operator()<256, 4, N>();
  return f.template operator()<256, 0, N>();
}
template <int Lanes>
dim3 row_blocks(std::int64_t rows) {
  return blocks_of(Lanes == 32 ? ceil_div(rows, 4) : rows);
}

template <class T>
struct WeightTerms {
  static constexpr int sums = 2;
  Place<const T> grad_y, x;
  const float *mean, *rstd;
  float with_mean;  // 0 for RMSNorm, where `mean` is a dummy
  std::int64_t columns, per_head = 0;
  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&totals)[2][N]) const {
    float g[N], v[N];
    load(grad_y.of(row, per_head, columns) + column, g);
    load(x.of(row, per_head, columns) + column, v);
    const float center = with_mean * mean[row], scale = rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      totals[0][j] = fmaf(g[j], (v[j] - center) * scale, totals[0][j]);
      totals[1][j] += g[j];
    }
  }
};

template <class T>
Place<T> place_of(const Access& access, const Tensor& x) {
  return {data<std::remove_const_t<T>>(access, x), x ? x.dim(1) : 0};
}
template <class T>
Place<T> place_of(const Access& access, const HeadColumns& x) {
  return {data<std::remove_const_t<T>>(access, x.rows) + x.begin, x.rows.dim(1)};
}
// Whether packs of the heads in these places lie at multiples of their size.
template <class T, class... Places>
bool heads_aligned(std::int64_t columns, const Places&... places) {
  return aligned(places.first...) && columns % pack_size<T> == 0 &&
         ((places.stride % pack_size<T> == 0) && ...);
}

template <class T>
void run_forward(const Queue& queue, const Forward<T>& a, bool wide) {
  by_row<T>(a.columns, wide, [&]<int Lanes, int P, int N>() {
    start(queue, row_blocks<Lanes>(a.rows), block_threads<Lanes>, forward_kernel<Lanes, P, N, T>,
          a);
  });
}
template <class T>
void run_backward(const Queue& queue, const Backward<T>& a, bool wide) {
  by_row<T>(a.columns, wide, [&]<int Lanes, int P, int N>() {
    start(queue, row_blocks<Lanes>(a.rows), block_threads<Lanes>, backward_kernel<Lanes, P, N, T>,
          a);
  });
}

}  // namespace

void norm_forward(const Access& access, Context&, const NormArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Forward<T> a{.x = place_of<const T>(access, args.x),
                       .weight = data<T>(access, args.weight),
                       .bias = data<T>(access, args.bias),
                       .y = place_of<T>(access, args.y),
                       .mean = data<float>(access, args.mean),
                       .rstd = data<float>(access, args.rstd),
                       .rows = args.x.dim(0),
                       .columns = args.x.dim(1),
                       .inverse = 1.0f / static_cast<float>(args.x.dim(1)),
                       .epsilon = args.epsilon};
    run_forward(queue_of(access), a, aligned(a.x.first, a.weight, a.bias, a.y.first));
  });
}

void norm_backward_input(const Access& access, Context&, const NormBackwardArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Backward<T> a{.grad_y = place_of<const T>(access, args.grad_y),
                        .x = place_of<const T>(access, args.x),
                        .weight = data<T>(access, args.weight),
                        .residual = data<T>(access, args.residual_grad),
                        .grad_x = place_of<T>(access, args.grad_x),
                        .mean = data<float>(access, args.mean),
                        .rstd = data<float>(access, args.rstd),
                        .rows = args.x.dim(0),
                        .columns = args.x.dim(1),
                        .inverse = 1.0f / static_cast<float>(args.x.dim(1))};
    run_backward(queue_of(access), a,
                 aligned(a.grad_y.first, a.x.first, a.weight, a.residual, a.grad_x.first));
  });
}

void norm_backward_weight(const Access& access, Context& context, const NormWeightArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_weight.dtype(), [&]<class U>(U*) {
      const WeightTerms<T> f{.grad_y = place_of<const T>(access, args.grad_y),
                             .x = place_of<const T>(access, args.x),
                             .mean = data<float>(access, args.mean ? args.mean : args.rstd),
                             .rstd = data<float>(access, args.rstd),
                             .with_mean = args.mean ? 1.0f : 0.0f,
                             .columns = args.x.dim(1)};
      column_sums<pack_size<T>>(access, context, args.x.dim(0), args.x.dim(1),
                                aligned(f.grad_y.first, f.x.first), f,
                                ColumnTargets<2, U>{{data<U>(access, args.grad_weight),
                                                     data<U>(access, args.grad_bias)}});
    });
  });
}

void head_norm_forward(const Access& access, Context&, const HeadNormArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const std::int64_t rows = args.x.rows.dim(0), columns = args.weight.dim(0);
    const Forward<T> a{.x = place_of<const T>(access, args.x),
                       .weight = data<T>(access, args.weight),
                       .y = place_of<T>(access, args.y),
                       .rstd = data<float>(access, args.rstd),
                       .rows = args.heads * rows,
                       .columns = columns,
                       .per_head = rows,
                       .inverse = 1.0f / static_cast<float>(columns),
                       .epsilon = args.epsilon};
    run_forward(queue_of(access), a, aligned(a.weight) && heads_aligned<T>(columns, a.x, a.y));
  });
}

void head_norm_backward_input(const Access& access, Context&, const HeadNormBackwardArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const std::int64_t rows = args.x.rows.dim(0), columns = args.weight.dim(0);
    const Backward<T> a{.grad_y = place_of<const T>(access, args.grad_y),
                        .x = place_of<const T>(access, args.x),
                        .weight = data<T>(access, args.weight),
                        .grad_x = place_of<T>(access, args.grad_x),
                        .rstd = data<float>(access, args.rstd),
                        .rows = args.heads * rows,
                        .columns = columns,
                        .per_head = rows,
                        .inverse = 1.0f / static_cast<float>(columns)};
    run_backward(queue_of(access), a,
                 aligned(a.weight) && heads_aligned<T>(columns, a.grad_y, a.x, a.grad_x));
  });
}

void head_norm_backward_weight(const Access& access, Context& context,
                               const HeadNormWeightArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_weight.dtype(), [&]<class U>(U*) {
      const std::int64_t rows = args.x.rows.dim(0), columns = args.grad_weight.dim(0);
      const WeightTerms<T> f{.grad_y = place_of<const T>(access, args.grad_y),
                             .x = place_of<const T>(access, args.x),
                             .mean = data<float>(access, args.rstd),
                             .rstd = data<float>(access, args.rstd),
                             .with_mean = 0.0f,
                             .columns = columns,
                             .per_head = rows};
      column_sums<pack_size<T>>(access, context, args.heads * rows, columns,
                                heads_aligned<T>(columns, f.grad_y, f.x), f,
                                ColumnTargets<2, U>{{data<U>(access, args.grad_weight), nullptr}});
    });
  });
}

namespace {

template <class T>
struct Dots {
  Place<const T> x, y;
  const T* weight;  // or null
  std::int64_t columns;
  float* dots;
};
// A block handles a row.
template <class T>
__global__ void __launch_bounds__(128) row_dots_kernel(Dots<T> a) {
  const T *const x = a.x.first + blockIdx.x * a.x.stride, *const y =
                                                              a.y.first + blockIdx.x * a.y.stride;
  float sum = 0;
  for (std::int64_t c = threadIdx.x; c < a.columns; c += 128) {
    const float product = to_float(x[c]) * to_float(y[c]);
    sum += a.weight == nullptr ? product : product * to_float(a.weight[c]);
  }
  sum = reduce_block<128, Sum>(sum);
  if (threadIdx.x == 0) a.dots[blockIdx.x] = sum;
}

template <class T>
struct RowForward {
  Place<const T> x;
  Place<T> y;
  const T* weight;
  const float* squares;
  float* rstd;
  std::int64_t columns;
  float all, epsilon;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t t = i / columns, c = i % columns;
    const float scale = 1 / sqrtf(squares[t] / all + epsilon);
    if (c == 0) rstd[t] = scale;
    y.first[t * y.stride + c] =
        rounded<T>(to_float(x.first[t * x.stride + c]) * scale * to_float(weight[c]));
  }
};

template <class T>
struct RowBackward {
  Place<const T> grad_y, x;
  Place<T> grad_x;
  const T* weight;
  const float *rstd, *dots;
  std::int64_t columns;
  float all;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t t = i / columns, c = i % columns;
    const float scale = rstd[t], along = scale * dots[t] / all;
    const float grad_normed = to_float(grad_y.first[t * grad_y.stride + c]) * to_float(weight[c]);
    const float normed = to_float(x.first[t * x.stride + c]) * scale;
    grad_x.first[t * grad_x.stride + c] = rounded<T>(scale * (grad_normed - normed * along));
  }
};

}  // namespace

void row_dots(const Access& access, Context&, const RowDotsArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const Dots<T> a{.x = place_of<const T>(access, args.x),
                    .y = place_of<const T>(access, args.y),
                    .weight = args.weight ? data<T>(access, args.weight) : nullptr,
                    .columns = args.columns,
                    .dots = data<float>(access, args.dots)};
    start(queue_of(access), blocks_of(args.x.rows.dim(0)), 128, row_dots_kernel<T>, a);
  });
}

void row_norm_forward(const Access& access, Context&, const RowNormArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const RowForward<T> f{.x = place_of<const T>(access, args.x),
                          .y = place_of<T>(access, args.y),
                          .weight = data<T>(access, args.weight),
                          .squares = data<float>(access, args.squares),
                          .rstd = data<float>(access, args.rstd),
                          .columns = args.weight.dim(0),
                          .all = static_cast<float>(args.all_columns),
                          .epsilon = args.epsilon};
    elementwise<1>(queue_of(access), args.x.rows.dim(0) * f.columns, true, f);
  });
}

void row_norm_backward_input(const Access& access, Context&, const RowNormBackwardArgs& args) {
  by_dtype(args.x.rows.dtype(), [&]<class T>(T*) {
    const RowBackward<T> f{.grad_y = place_of<const T>(access, args.grad_y),
                           .x = place_of<const T>(access, args.x),
                           .grad_x = place_of<T>(access, args.grad_x),
                           .weight = data<T>(access, args.weight),
                           .rstd = data<float>(access, args.rstd),
                           .dots = data<float>(access, args.dots),
                           .columns = args.weight.dim(0),
                           .all = static_cast<float>(args.all_columns)};
    elementwise<1>(queue_of(access), args.x.rows.dim(0) * f.columns, true, f);
  });
}

}  // namespace trident::cuda
