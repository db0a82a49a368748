// The FNV-1a hash (Fowler, Noll and Vo, 64 bits) of a sequence of integers. Each integer is one
// unit of the hash; over chars this is the published hash.
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
