#include "core/rng.h"

#include <cmath>
#include <numbers>

#include "base/fnv1a.h"

namespace trident {

std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t z = fnv1a(name) + 0x9e3779b97f4a7c15u * (seed + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::array<float, 4> random_normals(std::uint64_t key, std::uint64_t block) {
  const auto words =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
             {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  std::array<float, 4> normals;
  for (std::size_t at = 0; at < 4; at += 2) {      // two words make two normals
    const double u = (words[at] + 0.5) * 0x1p-32;  // in (0, 1)
    const double angle = 2 * std::numbers::pi * (words[at + 1] + 0.5) * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    normals[at] = static_cast<float>(radius * std::cos(angle));
    normals[at + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return normals;
}

}  // namespace trident
