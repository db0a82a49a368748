// Sums over the rows of a (T, H) matrix for each column, in two passes: chunks of rows add up to
// partial sums, then the partial sums add up to the result. The sizes alone determine the order of
// additions.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {

inline constexpr int column_rows = 8;  // rows that a block reads in parallel

// F has `static constexpr int sums` and `template <int N> __device__ void add(row, column, float
// (&totals)[sums][N]) const`, which adds the terms of N elements of a row.
template <int N, class F>
__global__ void __launch_bounds__(32 * column_rows, 4)
    partial_column_sums(std::int64_t rows, std::int64_t columns, std::int64_t chunk, F f,
                        float* partial) {
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x % 32) * N;
  const int lane = static_cast<int>(threadIdx.x % 32), at = static_cast<int>(threadIdx.x / 32);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * chunk;
  const std::int64_t end = begin + chunk < rows ? begin + chunk : rows;
  float totals[F::sums][N] = {};
  if (column < columns) {
    std::int64_t row = begin + at;
    for (; row + 3 * column_rows < end; row += 4 * column_rows) {
#pragma unroll
      for (int r = 0; r < 4; ++r) f.template add<N>(row + r * column_rows, column, totals);
    }
#pragma unroll 1
    for (; row < end; row += column_rows) f.template add<N>(row, column, totals);
  }
  __shared__ float shared[column_rows][F::sums][N][32];
#pragma unroll
  for (int s = 0; s < F::sums; ++s) {
#pragma unroll
    for (int j = 0; j < N; ++j) shared[at][s][j][lane] = totals[s][j];
  }
  __syncthreads();
  if (column >= columns) return;
  // Each row of the block's threads adds up some of the N elements.
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
__global__ void __launch_bounds__(32 * column_rows)
    add_column_sums(std::int64_t chunks, std::int64_t columns, const float* partial,
                    ColumnTargets<Sums, U> targets) {
  const int lane = static_cast<int>(threadIdx.x % 32), at = static_cast<int>(threadIdx.x / 32);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + lane;
  U* const to = blockIdx.y == 0 ? targets.to[0] : targets.to[Sums - 1];
  if (to == nullptr) return;
  float total = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t chunk = at; chunk < chunks; chunk += column_rows) {
      total += partial[(chunk * Sums + blockIdx.y) * columns + column];
    }
  }
  __shared__ float shared[column_rows][32];
  shared[at][lane] = total;
  __syncthreads();
  if (at > 0 || column >= columns) return;
  for (int r = 1; r < column_rows; ++r) total += shared[r][lane];
  to[column] = rounded<U>(to_float(to[column]) + total);
}

// Runs both passes, with the context's scratch memory. `wide`: all arrays allow 16-byte accesses at
// multiples of N elements.
template <int N, class F, class U>
void column_sums(const Access& access, Context& context, std::int64_t rows, std::int64_t columns,
                 bool wide, const F& f, const ColumnTargets<F::sums, U>& targets) {
  if (rows == 0 || columns == 0) return;
  const Queue& queue = queue_of(access);
  const std::int64_t chunk = chunk_rows(rows, columns), chunks = ceil_div(rows, chunk);
  float* const partial = state_of(context).template scratch<float>(
      access, context, column_partials(rows, columns, F::sums));
  if (wide && columns % N == 0) {
    start(queue, blocks_of(ceil_div(columns, 32 * N), chunks), 32 * column_rows,
          partial_column_sums<N, F>, rows, columns, chunk, f, partial);
  } else {
    start(queue, blocks_of(ceil_div(columns, 32), chunks), 32 * column_rows,
          partial_column_sums<1, F>, rows, columns, chunk, f, partial);
  }
  start(queue, blocks_of(ceil_div(columns, 32), F::sums), 32 * column_rows,
        add_column_sums<F::sums, U>, chunks, columns, static_cast<const float*>(partial), targets);
}

}  // namespace trident::cuda
