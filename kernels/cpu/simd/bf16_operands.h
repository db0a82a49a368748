// The operands of bf16 products (bf16_products.h). The left one has rows of bf16. The right one has
// rows of pairs: pair (p, n) holds the terms 2p and 2p + 1 of column n. D″ is D rounded up to 32
// terms, D' to 16; padding holds zeros.
#pragma once

#include "kernels/cpu/simd/attention_tiles.h"

namespace trident::cpu::simd::TRIDENT_ISA {

using Pair = std::uint32_t;
inline constexpr std::int64_t terms = 32;  // of a step of a product

TRIDENT_INLINE std::int64_t whole_terms(std::int64_t n) {
  return (n + terms - 1) / terms * terms;
}

// 16 numbers of 16 bits, in the lower halves of as many of 32; the first n of them, then zeros.
TRIDENT_INLINE __m512i halves(const BFloat16* from, std::int64_t n) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n < 16 ? n : 16), from));
}
// The same times a power of two.
TRIDENT_INLINE __m512i halves(const BFloat16* from, std::int64_t n, F factor) {
  const F scaled = (F)_mm512_castsi512_ps(_mm512_slli_epi32(halves(from, n), 16)) * factor;
  return _mm512_srli_epi32(_mm512_castps_si512(scaled), 16);
}
TRIDENT_INLINE __m512i halves(F x) {
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
}
TRIDENT_INLINE __m512i paired(__m512i even, __m512i odd) {
  return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

// Transposes 16 rows of 16 numbers.
TRIDENT_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// to[padded_count][D″] = factor · from[count][D].
static inline void pack_rows(Rows<const BFloat16> from, std::int64_t count,
                             std::int64_t padded_count, std::int64_t d, float factor,
                             BFloat16* to) {
  const std::int64_t width = whole_terms(d);
  const F scale = splat(factor);
  for (std::int64_t t = 0; t < padded_count; ++t) {
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t left = t < count ? most(0, d - i) : 0;
      const __m512i own = halves(left > 0 ? from.at(t) + i : nullptr, left, scale);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + t * width + i),
                          _mm512_cvtepi32_epi16(own));
    }
  }
}

// to[D″ / 2][columns]: pairs along the elements of `count` rows, which become columns, a multiple
// of 16.
static inline void pack_columns(Rows<const BFloat16> from, std::int64_t count, std::int64_t columns,
                                std::int64_t d, Pair* to) {
  for (std::int64_t t = 0; t < columns; t += 16) {
    for (std::int64_t i = 0; i < whole_terms(d); i += terms) {
      __m512i rows[16];
      for (int r = 0; r < 16; ++r) {
        const std::int64_t left = t + r < count ? most(0, d - i) : 0;
        rows[r] = _mm512_maskz_loadu_epi16(left >= 32 ? 0xffffffffu : (1u << left) - 1,
                                           left > 0 ? from.at(t + r) + i : nullptr);
      }
      transpose(rows);
      for (int p = 0; p < 16; ++p) _mm512_storeu_si512(to + (i / 2 + p) * columns + t, rows[p]);
    }
  }
}

// to[padded_count / 2][D']: pairs of rows.
static inline void pack_pairs(Rows<const BFloat16> from, std::int64_t count,
                              std::int64_t padded_count, std::int64_t d, Pair* to) {
  const std::int64_t width = padded(d);
  for (std::int64_t t = 0; t < padded_count; t += 2) {
    for (std::int64_t i = 0; i < width; i += 16) {
      const std::int64_t even = t < count ? d - i : 0, odd = t + 1 < count ? d - i : 0;
      _mm512_storeu_si512(to + t / 2 * width + i,
                          paired(halves(even > 0 ? from.at(t) + i : nullptr, even),
                                 halves(odd > 0 ? from.at(t + 1) + i : nullptr, odd)));
    }
  }
}

// to[D'][row] = factor · the transpose of from[count][D], from row `begin` (a multiple of 32) up to
// `end`, a multiple of 32.
static inline void pack_transposed(Rows<const BFloat16> from, std::int64_t begin,
                                   std::int64_t count, std::int64_t end, std::int64_t d,
                                   float factor, BFloat16* to, std::int64_t row) {
  const F scale = splat(factor);
  for (std::int64_t t = begin; t < end; t += 32) {
    for (std::int64_t i = 0; i < padded(d); i += 16) {
      __m512i pairs[16];
      for (int p = 0; p < 16; ++p) {
        const std::int64_t even = t + 2 * p < count ? d - i : 0,
                           odd = t + 2 * p + 1 < count ? d - i : 0;
        pairs[p] = paired(halves(even > 0 ? from.at(t + 2 * p) + i : nullptr, even, scale),
                          halves(odd > 0 ? from.at(t + 2 * p + 1) + i : nullptr, odd, scale));
      }
      transpose(pairs);
      for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + (i + r) * row + t, pairs[r]);
    }
  }
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
