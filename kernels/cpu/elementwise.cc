#include "kernels/elementwise.h"

#include <array>
#include <cstring>

#include "core/exact_sum.h"
#include "core/rng.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

template <class T>
void fill_as(const Access& access, Context& context, const Tensor& x, T value) {
  T* const to = data<T>(access, x);
  parallel_elements(context, x.numel(), grain_elements, [=](std::int64_t begin, std::int64_t end) {
    std::fill(to + begin, to + end, value);
  });
}

// Casts go through a small buffer of this many fp32 elements.
constexpr std::int64_t piece = 1024;

void to_floats(const simd::Table& table, DType dtype, const std::byte* x, float* y,
               std::int64_t n) {
  switch (dtype) {
    case DType::bf16:
      return table.bf16.to_f32(reinterpret_cast<const BFloat16*>(x), y, n);
    case DType::f16:
      return table.f16.to_f32(reinterpret_cast<const Float16*>(x), y, n);
    case DType::f64:
      for (std::int64_t i = 0; i < n; ++i) {
        y[i] = static_cast<float>(reinterpret_cast<const double*>(x)[i]);
      }
      return;
    default:
      std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}

void from_floats(const simd::Table& table, DType dtype, const float* x, std::byte* y,
                 std::int64_t n) {
  switch (dtype) {
    case DType::bf16:
      return table.bf16.from_f32(x, reinterpret_cast<BFloat16*>(y), n);
    case DType::f16:
      return table.f16.from_f32(x, reinterpret_cast<Float16*>(y), n);
    case DType::f64:
      for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<double*>(y)[i] = x[i];
      return;
    default:
      std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}

template <class T>
void sum_in_order(const T* x, std::int64_t n, double* total) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(static_cast<float>(x[i]));
  *total = sum;
}
template <>
void sum_in_order(const double* x, std::int64_t n, double* total) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  *total = sum;
}

}  // namespace

void fill(const Access& access, Context& context, const Tensor& x, double value) {
  switch (x.dtype()) {
    case DType::f64:
      return fill_as(access, context, x, value);
    case DType::f32:
      return fill_as(access, context, x, static_cast<float>(value));
    case DType::bf16:
      return fill_as(access, context, x, BFloat16(static_cast<float>(value)));
    case DType::f16:
      return fill_as(access, context, x, Float16(static_cast<float>(value)));
    case DType::i64:
      return fill_as(access, context, x, static_cast<std::int64_t>(value));
    case DType::i32:
      return fill_as(access, context, x, static_cast<std::int32_t>(value));
    case DType::u8:
      return fill_as(access, context, x, static_cast<std::uint8_t>(value));
  }
}

void copy(const Access& access, Context& context, const Tensor& from, const Tensor& to) {
  const auto* const source = static_cast<const std::byte*>(TensorAddress::of(access, from));
  auto* const target = static_cast<std::byte*>(TensorAddress::of(access, to));
  const auto from_size = static_cast<std::int64_t>(size_of(from.dtype()));
  const auto to_size = static_cast<std::int64_t>(size_of(to.dtype()));
  const simd::Table& table = *state_of(context).table;
  parallel_elements(context, from.numel(), grain_elements,
                    [&](std::int64_t begin, std::int64_t end) {
                      if (from.dtype() == to.dtype()) {
                        std::memmove(target + begin * to_size, source + begin * from_size,
                                     static_cast<std::size_t>((end - begin) * to_size));
                        return;
                      }
                      float floats[piece];
                      for (std::int64_t i = begin; i < end; i += piece) {
                        const std::int64_t n = std::min(piece, end - i);
                        to_floats(table, from.dtype(), source + i * from_size, floats, n);
                        from_floats(table, to.dtype(), floats, target + i * to_size, n);
                      }
                    });
}

void add(const Access& access, Context& context, const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::i64) {
    const auto* const from = data<std::int64_t>(access, x);
    auto* const to = data<std::int64_t>(access, y);
    for (std::int64_t i = 0; i < x.numel(); ++i) to[i] += from[i];
    return;
  }
  const simd::Table& table = *state_of(context).table;
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    const auto& leaves = table.get<T>();
    by_dtype(y.dtype(), [&]<class U>(U*) {
      U* const to = data<U>(access, y);
      parallel_elements(context, x.numel(), grain_elements,
                        [&](std::int64_t begin, std::int64_t end) {
                          leaves.add_to(from + begin, to + begin, end - begin);
                        });
    });
  });
}

void scale(const Access& access, Context& context, const Tensor& x, float factor) {
  float* const values = data<float>(access, x);
  const simd::Table& table = *state_of(context).table;
  parallel_elements(context, x.numel(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
    table.scale(values + begin, factor, end - begin);
  });
}

void lerp(const Access& access, Context& context, const Tensor& x, const Tensor& target,
          float part) {
  float* const values = data<float>(access, x);
  const float* const to = data<float>(access, target);
  const simd::Table& table = *state_of(context).table;
  parallel_elements(context, x.numel(), grain_elements, [&](std::int64_t begin, std::int64_t end) {
    table.lerp(values + begin, to + begin, part, end - begin);
  });
}

void add_bias(const Access& access, Context& context, const Tensor& x, const Tensor& bias,
              const Tensor& y) {
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T *const from = data<T>(access, x), *const shift = data<T>(access, bias);
    T* const to = data<T>(access, y);
    const auto& leaves = state_of(context).table->get<T>();
    const std::int64_t columns = x.dim(1);
    context.team().parallel_for(
        x.dim(0), grain_rows(columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            leaves.add_bias(from + t * columns, shift, to + t * columns, columns);
          }
        });
  });
}

void bias_backward(const Access& access, Context& context, const Tensor& grad_y,
                   const Tensor& grad_bias) {
  by_dtype(grad_y.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, grad_y);
    const simd::Table& table = *state_of(context).table;
    const auto& leaves = table.get<T>();
    const std::int64_t rows = grad_y.dim(0), columns = grad_y.dim(1);
    by_dtype(grad_bias.dtype(), [&]<class U>(U*) {
      U* const to = data<U>(access, grad_bias);
      parallel_elements(
          context, columns, grain_rows(rows), [&](std::int64_t begin, std::int64_t end) {
            add_in_f32(table, to + begin, end - begin,
                       [&](std::int64_t at, std::int64_t n, float* sums) {
                         leaves.column_sums(from + begin + at, columns, rows, n, sums);
                       });
          });
    });
  });
}

void sum(const Access& access, Context&, const Tensor& x, const Tensor& total) {
  double* const to = data<double>(access, total);
  if (x.dtype() == DType::f64) {
    sum_in_order(data<double>(access, x), x.numel(), to);
  } else {
    by_dtype(x.dtype(), [&]<class T>(T*) { sum_in_order(data<T>(access, x), x.numel(), to); });
  }
}

void square_sums(const Access& access, Context& context, const Tensor& x, std::int64_t block,
                 const Tensor& out) {
  double* const to = data<double>(access, out);
  const std::int64_t n = x.numel();
  by_dtype(x.dtype(), [&]<class T>(T*) {
    const T* const from = data<T>(access, x);
    const auto& leaves = state_of(context).table->get<T>();
    context.team().parallel_for(
        out.numel(), grain_rows(block), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            to[i] = leaves.square_sum(from + i * block, std::min(block, n - i * block));
          }
        });
  });
}

void exact_sum(const Access& access, Context&, const Tensor& x, const Tensor& state) {
  const double* const values = data<double>(access, x);
  std::int64_t* const digits = data<std::int64_t>(access, state);
  ExactSum sum = ExactSum::from_state(
      std::span<const std::int64_t, ExactSum::limbs + 1>(digits, state.numel()));
  for (std::int64_t i = 0; i < x.numel(); ++i) sum.add(values[i]);
  const auto result = sum.state();
  std::copy(result.begin(), result.end(), digits);
}

void fill_normal(const Access& access, Context& context, const NormalArgs& args) {
  const bool flat = args.x.shape().rank() == 1;
  const std::int64_t rows = flat ? 1 : args.x.dim(0), columns = args.x.dim(flat ? 0 : 1);
  by_dtype(args.x.dtype(), [&]<class T>(T*) {
    T* const to = data<T>(access, args.x);
    context.team().parallel_for(rows * columns, 256, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t block = ~std::uint64_t{0};  // block that `normals` holds
      std::array<float, 4> normals{};
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = args.row_begin + i / columns;
        const std::int64_t column = args.column_begin + i % columns;
        float value = 0;
        if (row < args.global_rows && column < args.global_columns) {
          const auto index = static_cast<std::uint64_t>(row * args.global_columns + column);
          if (index / 4 != block) normals = random_normals(args.key, block = index / 4);
          value = args.deviation * normals[index % 4] + args.mean;
        }
        to[i] = T(value);
      }
    });
  });
}

}  // namespace trident::cpu
