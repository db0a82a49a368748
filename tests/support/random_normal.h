// Element `index` of a stream of standard normal numbers, which `key` selects.
#pragma once

#include <cstdint>

#include "core/rng.h"

namespace trident {

inline float random_normal(std::uint64_t key, std::uint64_t index) {
  return random_normals(key, index / 4)[index % 4];
}

}  // namespace trident
