// Products of experts in tiles of our own. The rows of each group are known on the GPU alone, so a
// launch has as many blocks as tiles may exist, and a block looks up its tile.
#include "kernels/grouped_gemm.h"

#include "kernels/by_dtype.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

constexpr int tile = 64, depth = 16, threads = 256;
constexpr int each = 4;  // rows, and columns, of a tile that a thread computes

// The tiles of rows: their group and their first row. Unused tiles have the group -1.
__global__ void __launch_bounds__(32) tiles_kernel(const std::int64_t* ends, std::int64_t groups,
                                                   std::int64_t count, std::int64_t* tiles) {
  if (threadIdx.x != 0) return;
  std::int64_t at = 0, begin = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t row = begin; row < ends[g]; row += tile, ++at) {
      tiles[2 * at] = g;
      tiles[2 * at + 1] = row;
    }
    begin = ends[g];
  }
  for (; at < count; ++at) tiles[2 * at] = -1;
}

// sums += a b over `terms` terms, with both parts in shared memory. Terms are added in ascending
// order.
__device__ inline void multiply_tile(const float (&a)[depth][tile + 1],
                                     const float (&b)[depth][tile + 1], float (&sums)[each][each]) {
  const int row = threadIdx.x / 16 * each, column = threadIdx.x % 16 * each;
#pragma unroll
  for (int p = 0; p < depth; ++p) {
    float left[each], right[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      left[i] = a[p][row + i];
      right[i] = b[p][column + i];
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
#pragma unroll
      for (int j = 0; j < each; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
  }
}

// Loads element (p, i) of a part, for p < depth and i < tile: at(p, i), or 0 outside.
template <class At>
__device__ inline void load_part(float (&part)[depth][tile + 1], bool terms_together, At at) {
  for (int n = threadIdx.x; n < depth * tile; n += threads) {
    const int p = terms_together ? n % depth : n / tile, i = terms_together ? n / depth : n % tile;
    part[p][i] = at(p, i);
  }
}

template <class T>
struct Grouped {
  const T *a, *b;
  T* c;
  const std::int64_t *ends, *tiles;
  std::int64_t experts, k, n;
  bool transpose_b;
};
template <class T>
__global__ void __launch_bounds__(threads) grouped_kernel(Grouped<T> x) {
  const std::int64_t group = x.tiles[2 * static_cast<std::int64_t>(blockIdx.x)];
  if (group < 0) return;
  const std::int64_t row0 = x.tiles[2 * static_cast<std::int64_t>(blockIdx.x) + 1];
  const std::int64_t end = x.ends[group], column0 = static_cast<std::int64_t>(blockIdx.y) * tile;
  const T* const matrix = x.b + group % x.experts * x.k * x.n;
  __shared__ float a[depth][tile + 1], b[depth][tile + 1];
  float sums[each][each] = {};
  for (std::int64_t k0 = 0; k0 < x.k; k0 += depth) {
    load_part(a, true, [&](int p, int i) {
      const bool here = k0 + p < x.k && row0 + i < end;
      return here ? to_float(x.a[(row0 + i) * x.k + k0 + p]) : 0.0f;
    });
    load_part(b, x.transpose_b, [&](int p, int j) {
      const bool here = k0 + p < x.k && column0 + j < x.n;
      const std::int64_t at =
          x.transpose_b ? (column0 + j) * x.k + k0 + p : (k0 + p) * x.n + column0 + j;
      return here ? to_float(matrix[at]) : 0.0f;
    });
    __syncthreads();
    multiply_tile(a, b, sums);
    __syncthreads();
  }
  const std::int64_t row = row0 + threadIdx.x / 16 * each,
                     column = column0 + threadIdx.x % 16 * each;
#pragma unroll
  for (int i = 0; i < each; ++i) {
#pragma unroll
    for (int j = 0; j < each; ++j) {
      if (row + i < end && column + j < x.n) {
        x.c[(row + i) * x.n + column + j] = rounded<T>(sums[i][j]);
      }
    }
  }
}

template <class T, class U>
struct GroupedWeight {
  const T *a, *b;
  U* c;
  const std::int64_t* ends;
  std::int64_t groups, experts, m, n;
  bool accumulate;
};
template <class T, class U>
__global__ void __launch_bounds__(threads) grouped_weight_kernel(GroupedWeight<T, U> x) {
  const std::int64_t expert = blockIdx.z;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * tile;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.y) * tile;
  const std::int64_t row = row0 + threadIdx.x / 16 * each,
                     column = column0 + threadIdx.x % 16 * each;
  U* const c = x.c + (expert * x.m + row) * x.n + column;
  __shared__ float a[depth][tile + 1], b[depth][tile + 1];
  float totals[each][each] = {};
#pragma unroll
  for (int i = 0; i < each; ++i) {
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const bool here = x.accumulate && row + i < x.m && column + j < x.n;
      if (here) totals[i][j] = to_float(c[i * x.n + j]);
    }
  }
  for (std::int64_t g = expert; g < x.groups; g += x.experts) {
    const std::int64_t end = x.ends[g];
    float sums[each][each] = {};
    for (std::int64_t r = g == 0 ? 0 : x.ends[g - 1]; r < end; r += depth) {
      load_part(a, false, [&](int p, int i) {
        return r + p < end && row0 + i < x.m ? to_float(x.a[(r + p) * x.m + row0 + i]) : 0.0f;
      });
      load_part(b, false, [&](int p, int j) {
        return r + p < end && column0 + j < x.n ? to_float(x.b[(r + p) * x.n + column0 + j]) : 0.0f;
      });
      __syncthreads();
      multiply_tile(a, b, sums);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
#pragma unroll
      for (int j = 0; j < each; ++j) totals[i][j] += sums[i][j];
    }
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
#pragma unroll
    for (int j = 0; j < each; ++j) {
      if (row + i < x.m && column + j < x.n) c[i * x.n + j] = rounded<U>(totals[i][j]);
    }
  }
}

}  // namespace

void grouped_gemm(const Access& access, Context& context, const GroupedGemmArgs& args) {
  const Queue& queue = queue_of(access);
  const auto* const ends = data<std::int64_t>(access, args.ends);
  const std::int64_t groups = args.ends.dim(0), rows = args.a.dim(0), n = args.c.dim(1);
  const std::int64_t count = grouped_tiles(rows, groups);
  auto* const tiles = state_of(context).scratch<std::int64_t>(access, context, 2 * count);
  start(queue, blocks_of(1), 32, tiles_kernel, ends, groups, count, tiles);
  by_dtype(args.a.dtype(), [&]<class T>(T*) {
    const Grouped<T> x{.a = data<T>(access, args.a),
                       .b = data<T>(access, args.b),
                       .c = data<T>(access, args.c),
                       .ends = ends,
                       .tiles = tiles,
                       .experts = args.b.dim(0),
                       .k = args.a.dim(1),
                       .n = n,
                       .transpose_b = args.transpose_b};
    start(queue, blocks_of(count, ceil_div(n, tile)), threads, grouped_kernel<T>, x);
  });
}

void grouped_weight_gemm(const Access& access, Context&, const GroupedWeightGemmArgs& args) {
  by_dtype(args.a.dtype(), [&]<class T>(T*) {
    by_dtype(args.c.dtype(), [&]<class U>(U*) {
      const GroupedWeight<T, U> x{.a = data<T>(access, args.a),
                                  .b = data<T>(access, args.b),
                                  .c = data<U>(access, args.c),
                                  .ends = data<std::int64_t>(access, args.ends),
                                  .groups = args.ends.dim(0),
                                  .experts = args.c.dim(0),
                                  .m = args.c.dim(1),
                                  .n = args.c.dim(2),
                                  .accumulate = args.accumulate};
      const dim3 blocks(static_cast<unsigned>(ceil_div(x.m, tile)),
                        static_cast<unsigned>(ceil_div(x.n, tile)),
                        static_cast<unsigned>(x.experts));
      start(queue_of(access), blocks, threads, grouped_weight_kernel<T, U>, x);
    });
  });
}

}  // namespace trident::cuda
