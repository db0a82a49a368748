// Small matrix products in registers, for attention and experts. Compiled once per instruction set;
// see kernels/cpu/simd/vec.h.
#pragma once

#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {

// The left operand. Its element (i, p) is a[i·rows + p·columns].
struct Left {
  const float* a;
  std::int64_t rows, columns;
};

// One tile of M rows and V vectors: c (+)= a b over k terms, which are added in ascending order.
template <int M, int V>
TRIDENT_INLINE void product_tile(Left left, const float* b, std::int64_t b_row, float* c,
                                 std::int64_t c_row, std::int64_t k, bool add) {
  F sums[M][V];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[i][v] = add ? load(c + i * c_row + v * W) : F{};
  }
  for (std::int64_t p = 0; p < k; ++p) {
    F right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = load(b + p * b_row + v * W);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const F value = splat(left.a[i * left.rows + p * left.columns]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v] = fma(value, right[v], sums[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(c + i * c_row + v * W, sums[i][v]);
  }
}

// V vectors of columns over all m rows, in tiles that fill the registers.
template <int V>
static inline void product_columns(Left left, const float* b, std::int64_t b_row, float* c,
                                   std::int64_t c_row, std::int64_t m, std::int64_t k, bool add) {
  constexpr int M = W == 16 ? (V == 4 ? 6 : 8) : (V == 2 ? 6 : 8);
  const auto rows = [&](std::int64_t i) {
    return Left{left.a + i * left.rows, left.rows, left.columns};
  };
  std::int64_t i = 0;
  for (; i + M <= m; i += M) product_tile<M, V>(rows(i), b, b_row, c + i * c_row, c_row, k, add);
  if (M > 4 && i + 4 <= m) {
    product_tile<4, V>(rows(i), b, b_row, c + i * c_row, c_row, k, add);
    i += 4;
  }
  if (i + 2 <= m) {
    product_tile<2, V>(rows(i), b, b_row, c + i * c_row, c_row, k, add);
    i += 2;
  }
  if (i < m) product_tile<1, V>(rows(i), b, b_row, c + i * c_row, c_row, k, add);
}

// c[m, n] (+)= a[m, k] b[k, n]; n is a multiple of W.
static inline void product(Left left, const float* b, std::int64_t b_row, float* c,
                           std::int64_t c_row, std::int64_t m, std::int64_t n, std::int64_t k,
                           bool add) {
  constexpr int widest = W == 16 ? 4 : 2;
  std::int64_t j = 0;
  if constexpr (widest == 4) {
    for (; j + 4 * W <= n; j += 4 * W)
      product_columns<4>(left, b + j, b_row, c + j, c_row, m, k, add);
  }
  for (; j + 2 * W <= n; j += 2 * W)
    product_columns<2>(left, b + j, b_row, c + j, c_row, m, k, add);
  for (; j + W <= n; j += W) product_columns<1>(left, b + j, b_row, c + j, c_row, m, k, add);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
