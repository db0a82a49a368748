#include "kernels/by_dtype.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/model_weight.cuh"
#include "kernels/cuda/ordered_sum.cuh"
#include "kernels/optimizer.h"

namespace trident::cuda {
namespace {

constexpr double variance_floor = 0x1p-23;  // torch's eps1: the spacing of fp32 at 1
constexpr double smallest_rms = 1e-3;       // of the weights; torch's eps2
constexpr float smallest_variance = static_cast<float>(variance_floor * variance_floor);

// Whether every pack of N elements that begins at a multiple of N in the part lies in one row.
bool packs_fit(const AdafactorPart& part, int n) {
  return part.begin % n == 0 && part.columns % n == 0;
}

struct SquaredWeights {
  const float* weight;
  template <int N>
  __device__ double sum(std::int64_t i) const {
    float w[N];
    load(weight + i, w);
    double total = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) total += static_cast<double>(w[j]) * static_cast<double>(w[j]);
    return total;
  }
};

constexpr int tile_threads = AdafactorTiles::threads;
constexpr std::int64_t tile_rows = AdafactorTiles::tile_rows;

// A block adds up the squares of a tile. It writes a sum for each column to `by_column` (tiles of
// rows, C) and, for each row, a sum for each warp along the row to `by_row` (rows, warps).
template <int N, class T>
__global__ void __launch_bounds__(tile_threads)
    squares_kernel(std::int64_t begin, std::int64_t n, std::int64_t columns, std::int64_t row0,
                   std::int64_t rows, const T* gradient, float scale, double* by_row,
                   double* by_column) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * tile_threads + threadIdx.x) * N;
  const std::int64_t from = static_cast<std::int64_t>(blockIdx.y) * tile_rows;
  const std::int64_t to = from + tile_rows < rows ? from + tile_rows : rows;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (tile_threads / 32);
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (tile_threads / 32) + threadIdx.x / 32;
  double totals[N] = {};
  for (std::int64_t row = from; row < to; ++row) {
    const std::int64_t at = (row0 + row) * columns + column - begin;
    double along = 0;
    if (column < columns && at >= 0 && at < n) {
      float g[N];
      load(gradient + at, g);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const double x = static_cast<double>(g[j] * scale);
        totals[j] += x * x;
        along += x * x;
      }
    }
    along = reduce_warp<Sum>(along);
    if (threadIdx.x % 32 == 0) by_row[row * warps + warp] = along;
  }
  if (column >= columns) return;
#pragma unroll
  for (int j = 0; j < N; ++j) by_column[blockIdx.y * columns + column + j] = totals[j];
}

// to[i] += the sum of `terms` values, `stride` apart, that begin at from[i · step].
struct AddSums {
  const double* from;
  double* to;
  std::int64_t step, terms, stride;
  template <int N>
  __device__ void run(std::int64_t i) const {
    double total = to[i];
    for (std::int64_t t = 0; t < terms; ++t) total += from[i * step + t * stride];
    to[i] = total;
  }
};

// One block is enough, because a matrix has few rows and columns.
__global__ void __launch_bounds__(512)
    factors_kernel(std::int64_t rows, std::int64_t columns, const double* row_sums,
                   const double* column_sums, float* row_state, float* column_state, float* factors,
                   double row_count, double column_count, bool mean_of_rows, float rate) {
  const auto move = [&](std::int64_t n, const double* sums, float* state, double count) {
    double total = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += 512) {
      const float mean = static_cast<float>(sums[i] / count);
      const float moved = state[i] + rate * (mean - state[i]);
      state[i] = moved;
      total += static_cast<double>(moved);
    }
    return reduce_block<512, Sum>(total);
  };
  const double row_total = move(rows, row_sums, row_state, column_count);
  const double column_total = move(columns, column_sums, column_state, row_count);
  const double mean = mean_of_rows ? row_total / row_count : column_total / column_count;
  const double inverse = 1 / (mean > variance_floor ? mean : variance_floor);
  for (std::int64_t i = threadIdx.x; i < rows; i += 512) {
    factors[i] = static_cast<float>(static_cast<double>(row_state[i]) * inverse);
  }
}

// The variance of each element of a part.
struct Variance {
  const float* factors;  // null for a vector: column_state has a variance per element
  const float* column_state;
  std::int64_t begin, columns;
  template <int N>
  __device__ void of(std::int64_t i, float (&variance)[N]) const {
    float row = 1;
    if (factors) {
      const std::int64_t at = begin + i;
      row = factors[at / columns];
      load(column_state + at % columns, variance);
    } else {
      load(column_state + i, variance);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) variance[j] = fmaxf(row * variance[j], smallest_variance);
  }
};

template <class T>
struct SquaredDirections {
  const T* gradient;
  Variance variance;
  float scale;
  template <int N>
  __device__ double sum(std::int64_t i) const {
    float g[N], v[N];
    load(gradient + i, g);
    variance.of(i, v);
    double total = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const double u = static_cast<double>(g[j] * scale / sqrtf(v[j]));
      total += u * u;
    }
    return total;
  }
};

template <class T>
struct MoveVariance {
  const T* gradient;
  float* state;
  float scale, rate;
  template <int N>
  __device__ void run(std::int64_t i) const {
    float g[N], s[N];
    load(gradient + i, g);
    load(state + i, s);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float x = g[j] * scale;
      s[j] += rate * (x * x - s[j]);
    }
    store(state + i, s);
  }
};

template <class T, class M>
struct Update {
  float* weight;
  const T* gradient;
  M model;
  Variance variance;
  const double* sizes;
  double count, rate;
  float scale, decay;
  float step = 0;
  __device__ void begin() {
    const double directions = sqrt(sizes[0] / count), weights = sqrt(sizes[1] / count);
    step = static_cast<float>(rate * (weights > smallest_rms ? weights : smallest_rms) /
                              (directions > 1.0 ? directions : 1.0));
  }
  template <int N>
  __device__ void run(std::int64_t i) const {
    float w[N], g[N], v[N];
    load(weight + i, w);
    load(gradient + i, g);
    variance.of(i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) w[j] = w[j] * decay - step * (g[j] * scale / sqrtf(v[j]));
    store(weight + i, w);
    model.put(i, w);
  }
};

Variance variance_of(const Access& access, const AdafactorPart& part, const Tensor& factors,
                     const Tensor& column_state) {
  return {.factors = data<float>(access, factors),
          .column_state = data<float>(access, column_state),
          .begin = part.begin,
          .columns = part.columns};
}

}  // namespace

void adafactor_squares(const Access& access, Context& context, const AdafactorSquares& args) {
  const AdafactorPart& part = args.part;
  const Queue& queue = queue_of(access);
  const std::int64_t n = part.weight.numel();
  if (n == 0) return;
  const float* const weight = data<float>(access, part.weight);
  ordered_sum<4>(access, context, n, aligned(weight), SquaredWeights{weight},
                 data<double>(access, args.weights), true);
  if (!args.rows) return;
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    constexpr int N = pack_size<T>;
    const T* const gradient = data<T>(access, part.gradient);
    const bool wide = aligned(gradient) && packs_fit(part, N) && n % N == 0;
    const AdafactorTiles tiles(part, wide ? N : 1);
    double* const by_row =
        state_of(context).template scratch<double>(access, context, tiles.partials);
    double* const by_column = by_row + tiles.rows * tiles.warps;
    start(queue, blocks_of(tiles.across, tiles.down), tile_threads,
          wide ? squares_kernel<N, T> : squares_kernel<1, T>, part.begin, n, part.columns,
          tiles.first_row, tiles.rows, gradient, part.gradient_scale, by_row, by_column);
    elementwise<1>(queue, tiles.rows, true,
                   AddSums{by_row, data<double>(access, args.rows) + tiles.first_row, tiles.warps,
                           tiles.warps, 1});
    elementwise<1>(
        queue, part.columns, true,
        AddSums{by_column, data<double>(access, args.columns), 1, tiles.down, part.columns});
  });
}

void adafactor_factors(const Access& access, Context&, const AdafactorFactors& args) {
  start(queue_of(access), blocks_of(1), 512, factors_kernel, args.row_state.numel(),
        args.column_state.numel(), data<double>(access, args.row_sums),
        data<double>(access, args.column_sums), data<float>(access, args.row_state),
        data<float>(access, args.column_state), data<float>(access, args.factors),
        static_cast<double>(args.row_count), static_cast<double>(args.column_count),
        args.mean_of_rows, args.rate);
}

void adafactor_size(const Access& access, Context& context, const AdafactorSize& args) {
  const AdafactorPart& part = args.part;
  const std::int64_t n = part.weight.numel();
  if (n == 0) return;
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    constexpr int N = pack_size<T>;
    const T* const gradient = data<T>(access, part.gradient);
    float* const state = data<float>(access, args.column_state);
    const bool wide = aligned(gradient, state) && (!args.factors || packs_fit(part, N));
    if (!args.factors) {
      elementwise<N>(queue_of(access), n, wide,
                     MoveVariance<T>{gradient, state, part.gradient_scale, args.rate});
    }
    ordered_sum<N>(
        access, context, n, wide,
        SquaredDirections<T>{gradient, variance_of(access, part, args.factors, args.column_state),
                             part.gradient_scale},
        data<double>(access, args.size), true);
  });
}

void adafactor_update(const Access& access, Context&, const AdafactorUpdate& args) {
  const AdafactorPart& part = args.part;
  by_dtype(part.gradient.dtype(), [&]<class T>(T*) {
    by_model_weight(access, part.model_weight, [&]<class M>(M model) {
      constexpr int N = pack_size_of<T, typename M::Element>;
      const Update<T, M> f{
          .weight = data<float>(access, part.weight),
          .gradient = data<T>(access, part.gradient),
          .model = model,
          .variance = variance_of(access, part, args.factors, args.column_state),
          .sizes = data<double>(access, args.sizes),
          .count = static_cast<double>(args.count),
          .rate = std::min(args.learning_rate, 1 / std::sqrt(static_cast<double>(args.step))),
          .scale = part.gradient_scale,
          .decay = static_cast<float>(1 - args.learning_rate * args.weight_decay)};
      elementwise<N>(queue_of(access), part.weight.numel(),
                     aligned(f.weight, f.gradient, model.to, f.variance.column_state) &&
                         (!args.factors || packs_fit(part, N)),
                     f);
    });
  });
}

}  // namespace trident::cuda
