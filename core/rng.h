// Counter-based random numbers. A value depends only on its key and index, never on the order in
// which values are drawn, so it is the same in every layout of ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trident {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// A 64-bit key from a seed and a name (FNV-1a over the name, then SplitMix64's finaliser).
std::uint64_t random_key(std::uint64_t seed, std::string_view name);

// Elements 4·block … 4·block + 3 of the stream of standard normals of `key` (Box-Muller on Philox
// words).
std::array<float, 4> random_normals(std::uint64_t key, std::uint64_t block);

}  // namespace trident
