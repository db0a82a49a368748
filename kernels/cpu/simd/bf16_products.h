// Products of bf16 with sums in fp32, by AMX tiles (16 rows by 16 columns over 32 terms at a time)
// or by the vectors of AVX-512 BF16, whichever this file is compiled for.
#pragma once

#include "kernels/cpu/simd/bf16_operands.h"

namespace trident::cpu::simd::TRIDENT_ISA {

struct Operands {
  const BFloat16* a;
  std::int64_t a_row;
  const Pair* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
};

// product(): c (m, n) (+)= a (m, k) b (k, n), m and n multiples of 16, k of 32. Its thread holds a
// ProductScope.

#ifdef __AMX_BF16__

// Tiles 0 to 3 are sums, 4 and 5 the left operand, 6 and 7 the right one: all of 16 rows of 64
// bytes. A thread has them from construction to the end of the scope.
class ProductScope {
 public:
  ProductScope() {
    alignas(64) std::uint8_t config[64] = {1};
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = 64;
      config[48 + tile] = 16;
    }
    __asm__ volatile("" ::"r"(config) : "memory");  // the compiler knows of 8 bytes that it reads
    _tile_loadconfig(config);
  }
  ~ProductScope() { _tile_release(); }
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;
};

// The compiler doesn't know that tiles read memory.
TRIDENT_INLINE void before_tiles() {
  __asm__ volatile("" ::: "memory");
}

// M by N tiles.
template <int M, int N>
TRIDENT_INLINE void tile_product(const Operands& of, std::int64_t k, bool add) {
  const std::int64_t a_row = 2 * of.a_row, b_row = 4 * of.b_row, c_row = 4 * of.c_row;
  float* const below = of.c + 16 * of.c_row;
  _tile_zero(0);
  if (N > 1) _tile_zero(1);
  if (M > 1) _tile_zero(2);
  if (M > 1 && N > 1) _tile_zero(3);
  if (add) {
    _tile_loadd(0, of.c, c_row);
    if (N > 1) _tile_loadd(1, of.c + 16, c_row);
    if (M > 1) _tile_loadd(2, below, c_row);
    if (M > 1 && N > 1) _tile_loadd(3, below + 16, c_row);
  }
  for (std::int64_t p = 0; p < k; p += terms) {
    const Pair* const b = of.b + p / 2 * of.b_row;
    _tile_loadd(4, of.a + p, a_row);
    _tile_loadd(6, b, b_row);
    _tile_dpbf16ps(0, 4, 6);
    if (N > 1) {
      _tile_loadd(7, b + 16, b_row);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (M > 1) {
      _tile_loadd(5, of.a + 16 * of.a_row + p, a_row);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (M > 1 && N > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, of.c, c_row);
  if (N > 1) _tile_stored(1, of.c + 16, c_row);
  if (M > 1) _tile_stored(2, below, c_row);
  if (M > 1 && N > 1) _tile_stored(3, below + 16, c_row);
}

static inline void product(const Operands& of, std::int64_t m, std::int64_t n, std::int64_t k,
                           bool add) {
  before_tiles();
  for (std::int64_t j = 0; j < n; j += 32) {
    for (std::int64_t i = 0; i < m; i += 32) {
      const Operands part{of.a + i * of.a_row,     of.a_row, of.b + j, of.b_row,
                          of.c + i * of.c_row + j, of.c_row};
      const bool two_rows = i + 16 < m, two_columns = j + 16 < n;
      if (two_rows && two_columns) {
        tile_product<2, 2>(part, k, add);
      } else if (two_rows) {
        tile_product<2, 1>(part, k, add);
      } else if (two_columns) {
        tile_product<1, 2>(part, k, add);
      } else {
        tile_product<1, 1>(part, k, add);
      }
    }
  }
  before_tiles();
}

#else

struct ProductScope {
  ProductScope() {}  // not trivial, so that holding one is no unused variable
};

// R rows by C vectors of columns. A sum adds its pairs of terms in ascending order, whatever R and
// C are.
template <int R, int C>
TRIDENT_INLINE void vector_product(const Operands& of, std::int64_t k, bool add) {
  __m512 sums[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      sums[r][c] = add ? _mm512_loadu_ps(of.c + r * of.c_row + 16 * c) : _mm512_setzero_ps();
    }
  }
  for (std::int64_t p = 0; p < k / 2; ++p) {
    __m512i b[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) b[c] = _mm512_loadu_si512(of.b + p * of.b_row + 16 * c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Pair pair;
      __builtin_memcpy(&pair, of.a + r * of.a_row + 2 * p, sizeof pair);
      const __m512i a = _mm512_set1_epi32(static_cast<int>(pair));
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        sums[r][c] = _mm512_dpbf16_ps(sums[r][c], (__m512bh)a, (__m512bh)b[c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(of.c + r * of.c_row + 16 * c, sums[r][c]);
  }
}

template <int R, int C>
TRIDENT_INLINE void vector_rows(Operands of, std::int64_t m, std::int64_t k, bool add) {
  for (std::int64_t i = 0; i < m; i += R) {
    vector_product<R, C>(of, k, add);
    of.a += R * of.a_row, of.c += R * of.c_row;
  }
}

static inline void product(Operands of, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  for (; n >= 64; n -= 64, of.b += 64, of.c += 64) vector_rows<4, 4>(of, m, k, add);
  if (n >= 32) {
    vector_rows<8, 2>(of, m, k, add);
    n -= 32, of.b += 32, of.c += 32;
  }
  if (n > 0) vector_rows<16, 1>(of, m, k, add);
}

#endif

}  // namespace trident::cpu::simd::TRIDENT_ISA
