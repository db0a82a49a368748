// Dropout's multipliers, by the formula of kernels/dropout.h.
#pragma once

#include "kernels/cpu/simd/pack.h"
#include "kernels/cpu/simd/table.h"

namespace trident::cpu::simd::TRIDENT_ISA {

// factors[i] = 0 or keep_scale for the elements first + i of the sample, i < n.
static inline void dropout_factors(const Dropout& dropout, std::uint64_t sample,
                                   std::uint64_t first, std::int64_t n, float* factors) {
  constexpr int lanes = 16;  // Philox blocks, of four words each, at once
  typedef std::uint32_t Words[lanes];
  const std::int64_t skip = static_cast<std::int64_t>(first % 4);
  std::uint64_t block = first / 4;
  for (std::int64_t done = -skip; done < n; done += 4 * lanes, block += lanes) {
    Words c0, c1, c2, c3;
    for (int i = 0; i < lanes; ++i) {
      const std::uint64_t b = block + static_cast<std::uint64_t>(i);
      c0[i] = static_cast<std::uint32_t>(b);
      c1[i] = static_cast<std::uint32_t>(b >> 32);
      c2[i] = static_cast<std::uint32_t>(sample);
      c3[i] = static_cast<std::uint32_t>(sample >> 32);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(dropout.key);
    std::uint32_t k1 = static_cast<std::uint32_t>(dropout.key >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < lanes; ++i) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
        c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<std::uint32_t>(p1);
        c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<std::uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    float values[4 * lanes];
    for (int i = 0; i < lanes; ++i) {
      values[4 * i] = c0[i] >= dropout.threshold ? dropout.keep_scale : 0.0f;
      values[4 * i + 1] = c1[i] >= dropout.threshold ? dropout.keep_scale : 0.0f;
      values[4 * i + 2] = c2[i] >= dropout.threshold ? dropout.keep_scale : 0.0f;
      values[4 * i + 3] = c3[i] >= dropout.threshold ? dropout.keep_scale : 0.0f;
    }
    const std::int64_t begin = done < 0 ? -done : 0;
    const std::int64_t end = n - done < 4 * lanes ? n - done : 4 * lanes;
    for (std::int64_t i = begin; i < end; ++i) factors[done + i] = values[i];
  }
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
