// One element of a stream of standard normals.
#pragma once

#include <cstdint>

#include "core/rng.h"

namespace trident {

inline float random_normal(std::uint64_t key, std::uint64_t index) {
  return random_normals(key, index / 4)[index % 4];
}

}  // namespace trident
