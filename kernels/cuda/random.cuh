// Counter-based random numbers on the GPU, by the formulas of core/rng.h and kernels/dropout.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/pack.cuh"
#include "kernels/dropout.h"

namespace trident::cuda {

// Philox4x32-10 with the counter (low, high), each 64 bits.
__device__ inline uint4 philox(std::uint64_t low, std::uint64_t high, std::uint64_t key) {
  unsigned c0 = static_cast<unsigned>(low), c1 = static_cast<unsigned>(low >> 32),
           c2 = static_cast<unsigned>(high), c3 = static_cast<unsigned>(high >> 32);
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// Word i of four. i is known only at run time; selecting with conditionals avoids local memory.
__device__ inline unsigned word_of(uint4 words, unsigned i) {
  const unsigned low = i & 1 ? words.y : words.x, high = i & 1 ? words.w : words.z;
  return i & 2 ? high : low;
}

// Element `index` of the stream of standard normals (random_normals of core/rng.h).
__device__ inline float normal_of(std::uint64_t key, std::uint64_t index) {
  const uint4 words = philox(index / 4, 0, key);
  const bool second = index & 2;
  const double u = (second ? words.z : words.x) + 0.5;
  const double v = (second ? words.w : words.y) + 0.5;
  const double radius = sqrt(-2 * log(u * 0x1p-32));
  const double angle = 2 * 3.141592653589793 * v * 0x1p-32;
  return static_cast<float>(radius * (index & 1 ? sin(angle) : cos(angle)));
}

struct Dropout {
  std::uint64_t key = 0;
  unsigned threshold = 0;  // words below it drop the element; 0: no dropout
  float keep_scale = 1;

  // Writes the factor of elements index … index + N of a sample: 0 or keep_scale. index must be a
  // multiple of N.
  template <int N>
  __device__ void factors(std::uint64_t sample, std::uint64_t index, float (&to)[N]) const {
    if constexpr (N % 4 == 0) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        const uint4 words = philox(index / 4 + i / 4, sample, key);
        to[i] = words.x >= threshold ? keep_scale : 0.0f;
        to[i + 1] = words.y >= threshold ? keep_scale : 0.0f;
        to[i + 2] = words.z >= threshold ? keep_scale : 0.0f;
        to[i + 3] = words.w >= threshold ? keep_scale : 0.0f;
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint64_t at = index + static_cast<std::uint64_t>(i);
        const unsigned word = word_of(philox(at / 4, sample, key), static_cast<unsigned>(at % 4));
        to[i] = word >= threshold ? keep_scale : 0.0f;
      }
    }
  }
};

inline Dropout dropout_of(const DropoutArgs& args) {
  const double p = args.probability;
  return {args.key, static_cast<unsigned>(std::ceil(p * 0x1p32)), static_cast<float>(1 / (1 - p))};
}

}  // namespace trident::cuda
