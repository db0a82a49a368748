#include "kernels/reduce.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "core/error.h"

namespace trident {
namespace {

// Accumulator of an element type.
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

// Addition and multiplication that wrap instead of overflowing (floats as they are).
template <class T>
auto wrapping(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::uint64_t>(value);
  } else {
    return value;
  }
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrapping(a) + wrapping(b));
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(wrapping(a) * wrapping(b));
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// Blocks that stay in the first-level cache: every source is read once, the result written once.
template <class T, class Op>
void reduce_typed(T* destination, std::span<const void* const> sources, std::int64_t n, Op op,
                  int divisor) {
  constexpr std::int64_t block = 1024;
  Wide<T> total[block];
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t size = std::min(block, n - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i) total[i] = static_cast<Wide<T>>(first[i]);
    for (const void* source : sources.subspan(1)) {
      const T* next = static_cast<const T*>(source) + begin;
      for (std::int64_t i = 0; i < size; ++i) {
        total[i] = op(total[i], static_cast<Wide<T>>(next[i]));
      }
    }
    if (divisor != 1) {
      for (std::int64_t i = 0; i < size; ++i) {
        total[i] = static_cast<Wide<T>>(total[i] / static_cast<Wide<T>>(divisor));
      }
    }
    for (std::int64_t i = 0; i < size; ++i) destination[begin + i] = static_cast<T>(total[i]);
  }
}

template <class T>
void reduce_as(void* destination, std::span<const void* const> sources, std::int64_t n, ReduceOp op,
               int divisor) {
  T* to = static_cast<T*>(destination);
  switch (op) {
    case ReduceOp::sum:
      return reduce_typed(to, sources, n, Add{}, 1);
    case ReduceOp::average:
      return reduce_typed(to, sources, n, Add{}, divisor);
    case ReduceOp::product:
      return reduce_typed(to, sources, n, Multiply{}, 1);
    case ReduceOp::minimum:
      return reduce_typed(to, sources, n, Minimum{}, 1);
    case ReduceOp::maximum:
      return reduce_typed(to, sources, n, Maximum{}, 1);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::bit_and) return reduce_typed(to, sources, n, And{}, 1);
    if (op == ReduceOp::bit_or) return reduce_typed(to, sources, n, Or{}, 1);
    if (op == ReduceOp::bit_xor) return reduce_typed(to, sources, n, Xor{}, 1);
  }
  throw RequestError("reduce: " + std::string(name_of(op)) + " needs integers, got " +
                     std::string(name_of(DTypeOf<T>::value)));
}

}  // namespace

bool supports(ReduceOp op, DType dtype) {
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return !bitwise || !is_floating(dtype);
}

void reduce(void* destination, std::span<const void* const> sources, std::int64_t n, DType dtype,
            ReduceOp op, int divisor) {
  switch (dtype) {
    case DType::f64:
      return reduce_as<double>(destination, sources, n, op, divisor);
    case DType::f32:
      return reduce_as<float>(destination, sources, n, op, divisor);
    case DType::bf16:
      return reduce_as<BFloat16>(destination, sources, n, op, divisor);
    case DType::f16:
      return reduce_as<Float16>(destination, sources, n, op, divisor);
    case DType::i64:
      return reduce_as<std::int64_t>(destination, sources, n, op, divisor);
    case DType::i32:
      return reduce_as<std::int32_t>(destination, sources, n, op, divisor);
    case DType::u8:
      return reduce_as<std::uint8_t>(destination, sources, n, op, divisor);
  }
}

}  // namespace trident
