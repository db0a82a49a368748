// The multipliers of dropout, by the formula of kernels/dropout.h. Compiled once per instruction
// set; see kernels/cpu/simd/vec.h.
#pragma once

#include "kernels/cpu/simd/pack.h"
#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd::TRIDENT_ISA {

typedef std::uint64_t U64 __attribute__((vector_size(4 * W)));
typedef std::uint32_t U32 __attribute__((vector_size(4 * W)));

TRIDENT_INLINE U64 splat_u64(std::uint64_t x) {
  return U64{} + x;
}
// The products of the low halves of the lanes.
TRIDENT_INLINE U64 multiply_low(U64 a, U64 b) {
#if TRIDENT_ISA_WIDTH == 16
  return (U64)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif TRIDENT_ISA_WIDTH == 8
  return (U64)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
  return (U64)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}
// The even lanes, and the odd lanes, of two vectors of 64-bit words, interleaved within 128 bits.
TRIDENT_INLINE U64 even_lanes(U64 a, U64 b) {
#if TRIDENT_ISA_WIDTH == 16
  return (U64)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b);
#elif TRIDENT_ISA_WIDTH == 8
  return (U64)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b);
#else
  return (U64)_mm_unpacklo_epi64((__m128i)a, (__m128i)b);
#endif
}
TRIDENT_INLINE U64 odd_lanes(U64 a, U64 b) {
#if TRIDENT_ISA_WIDTH == 16
  return (U64)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b);
#elif TRIDENT_ISA_WIDTH == 8
  return (U64)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
#else
  return (U64)_mm_unpackhi_epi64((__m128i)a, (__m128i)b);
#endif
}

// The number of Philox blocks in one vector; each block gives four words.
inline constexpr int philox_blocks = W / 2;

// Writes factors[4·i + j] for word j of block first + i, i < N · philox_blocks. A word is the low
// half of a 64-bit lane, so a round takes two products, two shifts and a few exclusive ors.
template <int N>
TRIDENT_INLINE void philox_factors(const Dropout& dropout, std::uint64_t sample,
                                   std::uint64_t first, float* factors) {
  // Lanes 2i and 2i + 1 hold blocks that are half a vector apart. Taking the even, then the odd
  // lanes puts the blocks in order.
  U64 order;
  for (int i = 0; i < philox_blocks; ++i) {
    order[i] = static_cast<std::uint64_t>(i / 2 + (i % 2) * (philox_blocks / 2));
  }
  U64 c0[N], c1[N], c2[N], c3[N];
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) {
    c0[v] = order + (first + static_cast<std::uint64_t>(v * philox_blocks));
    c1[v] = c0[v] >> 32;
    c2[v] = splat_u64(sample);
    c3[v] = splat_u64(sample >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(dropout.key);
  std::uint32_t k1 = static_cast<std::uint32_t>(dropout.key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      const U64 p0 = multiply_low(c0[v], splat_u64(0xD2511F53u));
      const U64 p1 = multiply_low(c2[v], splat_u64(0xCD9E8D57u));
      c0[v] = (p1 >> 32) ^ c1[v] ^ splat_u64(k0);
      c1[v] = p1;
      c2[v] = (p0 >> 32) ^ c3[v] ^ splat_u64(k1);
      c3[v] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto keep = [&](U64 words, float* to) {
    const I kept = (I)((U32)words >= U32{} + dropout.threshold);
    store(to, floats(kept & (I)splat(dropout.keep_scale)));
  };
  constexpr std::uint64_t low = 0xffffffffu;
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) {
    const U64 a = (c0[v] & low) | c1[v] << 32, b = (c2[v] & low) | c3[v] << 32;
    keep(even_lanes(a, b), factors + 2 * v * W);
    keep(odd_lanes(a, b), factors + (2 * v + 1) * W);
  }
}

// factors[i] = 0 or keep_scale for element first + i of the sample, i < n.
static inline void dropout_factors(const Dropout& dropout, std::uint64_t sample,
                                   std::uint64_t first, std::int64_t n, float* factors) {
  constexpr int vectors = 4;  // at once, to hide the latency of a product
  constexpr std::int64_t words = vectors * 2 * W;
  std::uint64_t block = first / 4;
  const auto skip = static_cast<std::int64_t>(first % 4);
  std::int64_t done = 0;
  if (skip == 0) {
    for (; done + words <= n; done += words, block += words / 4) {
      philox_factors<vectors>(dropout, sample, block, factors + done);
    }
  }
  // The remainder, and rows that begin within a block, go through a buffer.
  float buffer[words];
  for (std::int64_t from = skip; done < n; from = 0, block += words / 4) {
    philox_factors<vectors>(dropout, sample, block, buffer);
    const std::int64_t count = n - done < words - from ? n - done : words - from;
    each(count, [&](std::int64_t i, auto lanes) {
      store(factors + done + i, load(buffer + from + i, lanes), lanes);
    });
    done += count;
  }
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
