// Values that differ by rank and element, and the serial reduction over ranks as the reference.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "kernels/reduce_op.h"

namespace trident::test {

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Floats in [-2, 2) with full mantissas, integers over their whole range.
template <class T>
T value_of(int rank, std::int64_t i) {
  std::uint64_t x = static_cast<std::uint64_t>(rank) * 1'000'003 + static_cast<std::uint64_t>(i);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x);
  } else {
    const double unit = static_cast<double>(x >> 11) * 0x1p-53;
    if constexpr (is_small_float<T>) {
      return T(static_cast<float>(unit * 4 - 2));
    } else {
      return static_cast<T>(unit * 4 - 2);
    }
  }
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t n, std::int64_t first = 0) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(value_of<T>(rank, first + i));
  return values;
}

template <class A>
A combine(ReduceOp op, A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using U = std::uint64_t;
    if (op == ReduceOp::sum || op == ReduceOp::average) return static_cast<A>(U(a) + U(b));
    if (op == ReduceOp::product) return static_cast<A>(U(a) * U(b));
    if (op == ReduceOp::bit_and) return static_cast<A>(a & b);
    if (op == ReduceOp::bit_or) return static_cast<A>(a | b);
    if (op == ReduceOp::bit_xor) return static_cast<A>(a ^ b);
  } else {
    if (op == ReduceOp::sum || op == ReduceOp::average) return a + b;
    if (op == ReduceOp::product) return a * b;
  }
  return (op == ReduceOp::minimum) == (a < b) ? a : b;
}

// The reduction of elements [first, first + n) of the members' values, in the order of `ranks`.
template <class T>
std::vector<T> reduced(ReduceOp op, const std::vector<int>& ranks, std::int64_t n,
                       std::int64_t first = 0) {
  using A = std::conditional_t<is_small_float<T>, float, T>;
  std::vector<T> result;
  for (std::int64_t i = 0; i < n; ++i) {
    A total = static_cast<A>(value_of<T>(ranks[0], first + i));
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      total = combine(op, total, static_cast<A>(value_of<T>(ranks[r], first + i)));
    }
    if (op == ReduceOp::average) {
      total = static_cast<A>(total / static_cast<A>(static_cast<int>(ranks.size())));
    }
    result.push_back(static_cast<T>(total));
  }
  return result;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace trident::test
