#include "kernels/norm.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace trident::cuda {
namespace {

template <class T>
struct Forward {
  const T *x, *weight, *bias;  // bias null: RMSNorm
  T* y;
  float *mean, *rstd;
  std::int64_t rows, columns;
  float epsilon;
};
template <class T>
struct Backward {
  const T *grad_y, *x, *weight, *residual;
  T* grad_x;
  const float *mean, *rstd;  // mean null: RMSNorm
  std::int64_t rows, columns;
};

// A row belongs to Lanes threads, which hold it in registers: P packs of N elements each. Rows that
// don't fit (P = 0) are read again in each pass.
template <int Lanes, int P, int N>
struct Row {
  static constexpr int kept = P > 0 ? P : 1;
  int lane;
  std::int64_t columns;

  // f(pack, column) for this thread's packs in order; `pack` is a constant where the row is kept.
  template <class F>
  __device__ void each(F f) const {
    if constexpr (P > 0) {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const std::int64_t column = (static_cast<std::int64_t>(p) * Lanes + lane) * N;
        if (column < columns) f(p, column);
      }
    } else {
      for (std::int64_t column = static_cast<std::int64_t>(lane) * N; column < columns;
           column += Lanes * N) {
        f(0, column);
      }
    }
  }
};

inline constexpr int warp_rows = 4;  // rows of a block where a warp takes one

template <int Lanes>
inline constexpr int block_threads = Lanes == 32 ? 32 * warp_rows : Lanes;

template <int Lanes>
__device__ inline std::int64_t row_of_thread() {
  return Lanes == 32 ? static_cast<std::int64_t>(blockIdx.x) * warp_rows + threadIdx.x / 32
                     : static_cast<std::int64_t>(blockIdx.x);
}

template <int Lanes, int P, int N, class T>
__global__ void __launch_bounds__(block_threads<Lanes>) forward_kernel(Forward<T> a) {
  const std::int64_t at = row_of_thread<Lanes>();
  if (at >= a.rows) return;
  using Layout = Row<Lanes, P, N>;
  const Layout row{static_cast<int>(threadIdx.x % Lanes), a.columns};
  const T* const x = a.x + at * a.columns;
  float v[Layout::kept][N];
  const auto again = [&](int p, std::int64_t column) {
    if constexpr (P == 0) load(x + column, v[p]);
  };
  float sum = 0;
  row.each([&](int p, std::int64_t column) {
    load(x + column, v[p]);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += v[p][j];
  });
  const float count = static_cast<float>(a.columns);
  const float center = a.bias ? reduce_block<Lanes, Sum>(sum) / count : 0.0f;
  float squares = 0;
  row.each([&](int p, std::int64_t column) {
    again(p, column);
#pragma unroll
    for (int j = 0; j < N; ++j) squares += (v[p][j] - center) * (v[p][j] - center);
  });
  const float scale = 1.0f / sqrtf(reduce_block<Lanes, Sum>(squares) / count + a.epsilon);
  row.each([&](int p, std::int64_t column) {
    again(p, column);
    float w[N], y[N];
    load(a.weight + column, w);
    if (a.bias) {
      float b[N];
      load(a.bias + column, b);
#pragma unroll
      for (int j = 0; j < N; ++j) y[j] = fmaf((v[p][j] - center) * scale, w[j], b[j]);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) y[j] = v[p][j] * scale * w[j];
    }
    store(a.y + at * a.columns + column, y);
  });
  if (row.lane == 0) {
    if (a.mean) a.mean[at] = center;
    a.rstd[at] = scale;
  }
}

// With g = grad_y·weight and the normalised row h: rstd · (g - mean(g) - h·mean(g·h)); RMSNorm has
// no mean(g).
template <int Lanes, int P, int N, class T>
__global__ void __launch_bounds__(block_threads<Lanes>) backward_kernel(Backward<T> a) {
  const std::int64_t at = row_of_thread<Lanes>();
  if (at >= a.rows) return;
  using Layout = Row<Lanes, P, N>;
  const Layout row{static_cast<int>(threadIdx.x % Lanes), a.columns};
  const std::int64_t first = at * a.columns;
  const float center = a.mean ? a.mean[at] : 0.0f, rstd = a.rstd[at];
  float g[Layout::kept][N], h[Layout::kept][N];
  const auto take = [&](int p, std::int64_t column) {
    float w[N];
    load(a.grad_y + first + column, g[p]);
    load(a.x + first + column, h[p]);
    load(a.weight + column, w);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      g[p][j] *= w[j];
      h[p][j] = (h[p][j] - center) * rstd;
    }
  };
  float ones = 0, along = 0;
  row.each([&](int p, std::int64_t column) {
    take(p, column);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      ones += g[p][j];
      along += g[p][j] * h[p][j];
    }
  });
  const float inverse = 1.0f / static_cast<float>(a.columns);
  const float along_one = a.mean ? inverse * reduce_block<Lanes, Sum>(ones) : 0.0f;
  const float along_row = inverse * reduce_block<Lanes, Sum>(along);
  row.each([&](int p, std::int64_t column) {
    if constexpr (P == 0) take(p, column);
    float d[N];
#pragma unroll
    for (int j = 0; j < N; ++j) d[j] = rstd * (fmaf(-h[p][j], along_row, g[p][j]) - along_one);
    if (a.residual) {
      float r[N];
      load(a.residual + first + column, r);
#pragma unroll
      for (int j = 0; j < N; ++j) d[j] += r[j];
    }
    store(a.grad_x + first + column, d);
  });
}

// Calls f<Lanes, P, N> with the layout for rows of `columns` elements, N elements in a pack.
template <int N, class F>
void by_row(std::int64_t columns, const F& f) {
  const std::int64_t packs = ceil_div(columns, N);
  if (packs <= 32) return f.template operator()<32, 1, N>();
  if (packs <= 32 * 2) return f.template operator()<32, 2, N>();
  if (packs <= 32 * 4) return f.template operator()<32, 4, N>();
  if (packs <= 256 * 1) return f.template operator()<256, 1, N>();
  if (packs <= 256 * 2) return f.template operator()<256, 2, N>();
  if (packs <= 256 * 4) return f.template operator()<256, 4, N>();
  return f.template operator()<256, 0, N>();
}
template <class T, class F>
void by_row(std::int64_t columns, bool wide, const F& f) {
  if (wide && columns % pack_size<T> == 0) {
    by_row<pack_size<T>>(columns, f);
  } else {
    by_row<1>(columns, f);
  }
}
template <int Lanes>
dim3 row_blocks(std::int64_t rows) {
  return blocks_of(Lanes == 32 ? ceil_div(rows, warp_rows) : rows);
}

template <class T>
struct WeightTerms {
  static constexpr int sums = 2;
  const T *grad_y, *x;
  const float *mean, *rstd;
  std::int64_t columns;
  template <int N>
  __device__ void add(std::int64_t row, std::int64_t column, float (&totals)[2][N]) const {
    float g[N], v[N];
    load(grad_y + row * columns + column, g);
    load(x + row * columns + column, v);
    const float center = mean ? mean[row] : 0.0f, scale = rstd[row];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      totals[0][j] = fmaf(g[j], (v[j] - center) * scale, totals[0][j]);
      totals[1][j] += g[j];
    }
  }
};

}  // namespace

void norm_forward(const Access& access, Context&, const NormArgs& args) {
  const Queue& queue = queue_of(access);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Forward<T> a{.x = data<T>(access, args.x),
                       .weight = data<T>(access, args.weight),
                       .bias = data<T>(access, args.bias),
                       .y = data<T>(access, args.y),
                       .mean = data<float>(access, args.mean),
                       .rstd = data<float>(access, args.rstd),
                       .rows = args.x.dim(0),
                       .columns = args.x.dim(1),
                       .epsilon = args.epsilon};
    by_row<T>(a.columns, aligned(a.x, a.weight, a.bias, a.y), [&]<int Lanes, int P, int N>() {
      start(queue, row_blocks<Lanes>(a.rows), block_threads<Lanes>, forward_kernel<Lanes, P, N, T>,
            a);
    });
  });
}

void norm_backward_input(const Access& access, Context&, const NormBackwardArgs& args) {
  const Queue& queue = queue_of(access);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    const Backward<T> a{.grad_y = data<T>(access, args.grad_y),
                        .x = data<T>(access, args.x),
                        .weight = data<T>(access, args.weight),
                        .residual = data<T>(access, args.residual_grad),
                        .grad_x = data<T>(access, args.grad_x),
                        .mean = data<float>(access, args.mean),
                        .rstd = data<float>(access, args.rstd),
                        .rows = args.x.dim(0),
                        .columns = args.x.dim(1)};
    by_row<T>(a.columns, aligned(a.grad_y, a.x, a.weight, a.residual, a.grad_x),
              [&]<int Lanes, int P, int N>() {
                start(queue, row_blocks<Lanes>(a.rows), block_threads<Lanes>,
                      backward_kernel<Lanes, P, N, T>, a);
              });
  });
}

void norm_backward_weight(const Access& access, Context& context, const NormWeightArgs& args) {
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    by_dtype(args.grad_weight.dtype(), [&]<class U>(U*) {
      const WeightTerms<T> f{.grad_y = data<T>(access, args.grad_y),
                             .x = data<T>(access, args.x),
                             .mean = data<float>(access, args.mean),
                             .rstd = data<float>(access, args.rstd),
                             .columns = args.x.dim(1)};
      column_sums<pack_size<T>>(access, context, args.x.dim(0), args.x.dim(1),
                                aligned(f.grad_y, f.x), f,
                                ColumnTargets<2, U>{{data<U>(access, args.grad_weight),
                                                     data<U>(access, args.grad_bias)}});
    });
  });
}

}  // namespace trident::cuda
