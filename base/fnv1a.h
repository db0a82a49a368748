// Hash of Fowler, Noll and Vo (FNV-1a, 64 bits) of integers, each taken as one unit: of chars it is
// the published one.
#pragma once

#include <cstdint>
#include <type_traits>

namespace trident {

template <class Integers>
constexpr std::uint64_t fnv1a(const Integers& integers) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto x : integers) {
    hash = (hash ^ static_cast<std::make_unsigned_t<std::remove_const_t<decltype(x)>>>(x)) *
           0x100000001b3u;
  }
  return hash;
}

}  // namespace trident
