#include "kernels/reduce.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace trident {
namespace {

constexpr std::int64_t block_size = 1024;

// The accumulator of an element type.
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

// Addition and multiplication of integers wrap instead of overflowing; floats are unchanged.
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
    return a < b || a != a ? a : b;  // NOLINT(misc-redundant-expression): a NaN
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression): a NaN
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

// total[i] := total[i] op the elements of the sources from `begin` on, in order. With `begins` the
// first source starts the total.
template <class T, class Op>
void add_sources(Wide<T>* total, bool begins, std::span<const void* const> sources,
                 std::int64_t begin, std::int64_t n, Op op) {
  if (begins) {
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) total[i] = static_cast<Wide<T>>(first[i]);
    sources = sources.subspan(1);
  }
  for (const void* source : sources) {
    const T* next = static_cast<const T*>(source) + begin;
    for (std::int64_t i = 0; i < n; ++i) total[i] = op(total[i], static_cast<Wide<T>>(next[i]));
  }
}

template <class T>
void write_result(T* destination, Wide<T>* total, std::int64_t n, int divisor) {
  if (divisor != 1) {
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>) {  // the divisor may be larger than the type
        total[i] = static_cast<T>(static_cast<std::int64_t>(total[i]) / divisor);
      } else {
        total[i] /= static_cast<Wide<T>>(divisor);
      }
    }
  }
  for (std::int64_t i = 0; i < n; ++i) destination[i] = static_cast<T>(total[i]);
}

// Works in blocks that stay in the first-level cache, so every source is read once and the result
// written once.
template <class F>
void in_blocks(std::int64_t n, F&& f) {
  for (std::int64_t begin = 0; begin < n; begin += block_size) {
    f(begin, std::min(block_size, n - begin));
  }
}

// Calls f with a null pointer to the element type.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::bf16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::f16:
      return f(static_cast<Float16*>(nullptr));
    case DType::i64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::u8:
      return f(static_cast<std::uint8_t*>(nullptr));
  }
}

// Calls f with the operation.
template <class T, class F>
void with_operation(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return f(Add{});
    case ReduceOp::product:
      return f(Multiply{});
    case ReduceOp::minimum:
      return f(Minimum{});
    case ReduceOp::maximum:
      return f(Maximum{});
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::bit_and) return f(And{});
    if (op == ReduceOp::bit_or) return f(Or{});
    if (op == ReduceOp::bit_xor) return f(Xor{});
  }
  throw RequestError("reduce: " + std::string(name_of(op)) + " needs integers, got " +
                     std::string(name_of(DTypeOf<T>::value)));
}

int divisor_of(ReduceOp op, int divisor) {
  return op == ReduceOp::average ? divisor : 1;
}

}  // namespace

bool supports(ReduceOp op, DType dtype) {
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return !bitwise || !is_floating(dtype);
}

DType accumulator_of(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
}

void reduce(void* destination, std::span<const void* const> sources, std::int64_t n, DType dtype,
            ReduceOp op, int divisor) {
  with_type(dtype, [&]<class T>(T*) {
    with_operation<T>(op, [&](auto add) {
      in_blocks(n, [&](std::int64_t begin, std::int64_t size) {
        Wide<T> total[block_size];
        add_sources<T>(total, true, sources, begin, size, add);
        write_result(static_cast<T*>(destination) + begin, total, size, divisor_of(op, divisor));
      });
    });
  });
}

void reduce_on(void* running, bool begins, std::span<const void* const> sources, std::int64_t n,
               DType dtype, ReduceOp op) {
  with_type(dtype, [&]<class T>(T*) {
    with_operation<T>(op, [&](auto add) {
      in_blocks(n, [&](std::int64_t begin, std::int64_t size) {
        add_sources<T>(static_cast<Wide<T>*>(running) + begin, begins, sources, begin, size, add);
      });
    });
  });
}

void reduce_end(void* destination, const void* running, std::int64_t n, DType dtype, ReduceOp op,
                int divisor) {
  with_type(dtype, [&]<class T>(T*) {
    in_blocks(n, [&](std::int64_t begin, std::int64_t size) {
      Wide<T> total[block_size];
      std::copy_n(static_cast<const Wide<T>*>(running) + begin, size, total);
      write_result(static_cast<T*>(destination) + begin, total, size, divisor_of(op, divisor));
    });
  });
}

}  // namespace trident
