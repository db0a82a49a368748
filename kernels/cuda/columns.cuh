// Sums over the rows of (T, H) for each column, in two passes whose shape the sizes alone decide:
// chunks of rows add up to partial sums, the partial sums to the result.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {

inline constexpr int column_rows = 8;  // rows that a block reads side by side

// F: `static constexpr int sums`, and `template <int N> __device__ void add(row, column, float
// (&totals)[sums][N]) const` which adds the terms of N elements of a row.
template <int N, class F>
__global__ void __launch_bounds__(32 * column_rows)
    partial_column_sums(std::int64_t rows, std::int64_t columns, F f, float* partial) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x % 32) * N;
  const int lane = static_cast<int>(threadIdx.x % 32), at = static_cast<int>(threadIdx.x / 32);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * chunk_rows;
  const std::int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float totals[F::sums][N] = {};
  if (column < columns) {
    for (std::int64_t row = begin + at; row < end; row += column_rows) {
      f.template add<N>(row, column, totals);
    }
  }
  __shared__ float shared[column_rows][F::sums][N][32];
#pragma unroll
  for (int s = 0; s < F::sums; ++s) {
#pragma unroll
    for (int j = 0; j < N; ++j) shared[at][s][j][lane] = totals[s][j];
  }
  __syncthreads();
  if (column >= columns) return;
  // Each of the block's rows of threads adds up some of the N elements.
  for (int j = at; j < F::sums * N; j += column_rows) {
    float total = 0;
#pragma unroll
    for (int r = 0; r < column_rows; ++r) total += shared[r][j / N][j % N][lane];
    partial[(static_cast<std::int64_t>(blockIdx.y) * F::sums + j / N) * columns + column + j % N] =
        total;
  }
}

// to[s][column] += the chunks' sums; to[s] may be null.
template <int Sums, class U>
struct ColumnTargets {
  U* to[Sums];
};
template <int Sums, class U>
__global__ void __launch_bounds__(256)
    add_column_sums(std::int64_t chunks, std::int64_t columns, const float* partial,
                    ColumnTargets<Sums, U> targets) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  U* const to = blockIdx.y == 0 ? targets.to[0] : targets.to[Sums - 1];
  if (column >= columns || to == nullptr) return;
  float total = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    total += partial[(chunk * Sums + blockIdx.y) * columns + column];
  }
  to[column] = rounded<U>(to_float(to[column]) + total);
}

template <int N, class F, class U>
void column_sums(const Access& access, Context& context, std::int64_t rows, std::int64_t columns,
                 bool wide, const F& f, const ColumnTargets<F::sums, U>& targets) {
  if (rows == 0 || columns == 0) return;
  const Queue& queue = queue_of(access);
  const std::int64_t chunks = ceil_div(rows, chunk_rows);
  float* const partial = state_of(context).template scratch<float>(
      access, context, column_partials(rows, columns, F::sums));
  if (wide && columns % N == 0) {
    start(queue, blocks_of(ceil_div(columns, 32 * N), chunks), 32 * column_rows,
          partial_column_sums<N, F>, rows, columns, f, partial);
  } else {
    start(queue, blocks_of(ceil_div(columns, 32), chunks), 32 * column_rows,
          partial_column_sums<1, F>, rows, columns, f, partial);
  }
  start(queue, blocks_of(ceil_div(columns, 256), F::sums), 256, add_column_sums<F::sums, U>, chunks,
        columns, static_cast<const float*>(partial), targets);
}

}  // namespace trident::cuda
