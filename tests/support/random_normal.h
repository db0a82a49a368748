// Element `index` of a stream of standard normal numbers, which `key` selects.
#pragma once

#include <array>
#include <cstdint>

#include "core/rng.h"

namespace trident {

inline float random_normal(std::uint64_t key, std::uint64_t index) {
  struct Block {
    std::uint64_t key = 0, number = 0;
    std::array<float, 4> values = random_normals(0, 0);
  };
  thread_local Block last;  // a test asks for one element after the other
  if (last.key != key || last.number != index / 4) {
    last = {key, index / 4, random_normals(key, index / 4)};
  }
  return last.values[index % 4];
}

}  // namespace trident
