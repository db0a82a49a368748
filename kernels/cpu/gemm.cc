#include "kernels/gemm.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product_cache.h"
#include "kernels/cpu/state.h"
#include "kernels/gemm_unfused.h"

namespace trident::cpu {
namespace {

// Rows [row, row + rows) and columns [column, column + columns) of a matrix as stored.
struct Part {
  std::int64_t row, rows, column, columns;
};

// Copies a part of a 16-bit matrix to a dense fp32 matrix.
template <class T>
void widen(Context& context, const void* matrix, std::int64_t from_row, const Part& part,
           float* to) {
  const T* const from = static_cast<const T*>(matrix);
  const auto& leaves = state_of(context).table->get<T>();
  context.team().parallel_for(part.rows, grain_rows(part.columns),
                              [&](std::int64_t begin, std::int64_t end) {
                                for (std::int64_t i = begin; i < end; ++i) {
                                  leaves.to_f32(from + (part.row + i) * from_row + part.column,
                                                to + i * part.columns, part.columns);
                                }
                              });
}

// Rounds a dense fp32 matrix into a part of a 16-bit matrix.
template <class T>
void narrow(Context& context, const float* from, const Part& part, void* matrix,
            std::int64_t to_row) {
  T* const to = static_cast<T*>(matrix);
  const auto& leaves = state_of(context).table->get<T>();
  context.team().parallel_for(
      part.rows, grain_rows(part.columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          leaves.from_f32(from + i * part.columns, to + (part.row + i) * to_row + part.column,
                          part.columns);
        }
      });
}

// Block sizes of a 16-bit product on a processor without a (fast) instruction for it. Blocks of the
// operands become fp32, products accumulate in fp32, and c is rounded unless it is fp32.
struct Blocks {
  // These sizes keep row lengths off multiples of 4096 bytes.
  explicit Blocks(const Product& p)
      : m(std::min<std::int64_t>(p.m, 1920)),
        n(std::min<std::int64_t>(p.n, 960)),
        k(std::min<std::int64_t>(p.k, 960)),
        round(p.output != DType::f32) {}
  static std::int64_t aligned(std::int64_t n) { return (n + 15) / 16 * 16; }
  // Bytes of the blocks of a, b, bias, and of c if it is rounded.
  std::int64_t bytes() const {
    return (aligned(m * k) + aligned(k * n) + aligned(n) + (round ? m * n : 0)) *
           static_cast<std::int64_t>(sizeof(float));
  }
  std::int64_t m, n, k;
  bool round;
};

template <class T>
void run_widened(const Access& access, Context& context, const Product& whole,
                 const ProductOperands& operands) {
  const Blocks blocks(whole);
  const std::int64_t m_block = blocks.m, n_block = blocks.n, k_block = blocks.k;
  const bool round = blocks.round;
  State& state = state_of(context);
  auto* const a = reinterpret_cast<float*>(state.scratch(access, context, blocks.bytes()));
  float* const b = a + Blocks::aligned(m_block * k_block);
  float* const bias = b + Blocks::aligned(k_block * n_block);
  float* const c = bias + Blocks::aligned(n_block);

  Product product = whole;
  product.input = product.output = DType::f32;
  // A block of a that spans all of k is widened once and serves every column of c.
  std::int64_t widened_row = -1;
  for (std::int64_t m0 = 0; m0 < whole.m; m0 += m_block) {
    product.m = std::min(m_block, whole.m - m0);
    for (std::int64_t n0 = 0; n0 < whole.n; n0 += n_block) {
      product.n = std::min(n_block, whole.n - n0);
      const Part c_part{m0, product.m, n0, product.n};
      product.c_row = round ? product.n : whole.c_row;
      float* const target = round ? c : static_cast<float*>(operands.c) + m0 * whole.c_row + n0;
      if (round && whole.accumulate) {
        widen<T>(context, operands.c, whole.c_row, c_part, c);
      }
      if (whole.bias) {
        widen<T>(context, operands.bias, 0, {0, 1, n0, product.n}, bias);
      }
      for (std::int64_t k0 = 0; k0 < whole.k; k0 += k_block) {
        product.k = std::min(k_block, whole.k - k0);
        const Part a_part = whole.transpose_a ? Part{k0, product.k, m0, product.m}
                                              : Part{m0, product.m, k0, product.k};
        const Part b_part = whole.transpose_b ? Part{n0, product.n, k0, product.k}
                                              : Part{k0, product.k, n0, product.n};
        if (k_block < whole.k || widened_row != m0) {
          widen<T>(context, operands.a, whole.a_row, a_part, a);
          widened_row = m0;
        }
        widen<T>(context, operands.b, whole.b_row, b_part, b);
        product.a_row = a_part.columns;
        product.b_row = b_part.columns;
        product.accumulate = whole.accumulate || k0 > 0;
        product.bias = whole.bias && k0 == 0;
        state.products->run(access, context, product, {a, b, target, bias});
      }
      if (round) narrow<T>(context, c, c_part, operands.c, whole.c_row);
    }
  }
}

Product product_of(const GemmArgs& args) {
  return {.m = args.c.dim(0),
          .n = args.c.dim(1),
          .k = args.a.dim(args.transpose_a ? 0 : 1),
          .a_row = args.a.dim(1),
          .b_row = args.b.dim(1),
          .c_row = args.c.dim(1),
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .bias = args.bias.defined(),
          .input = args.a.dtype(),
          .output = args.c.dtype()};
}

// Whether the product is a single row, as in text generation. A product library would first pack
// the weights, which only pays off for many rows.
bool is_row(const Product& p) {
  return p.m == 1 && p.transpose_b && !p.transpose_a;
}

std::int64_t row_scratch_bytes(const Product& p) {
  return p.input == DType::f32 ? 0 : p.k * static_cast<std::int64_t>(sizeof(float));
}

template <class T, class U>
void multiply_row(const Access& access, Context& context, const Product& p,
                  const ProductOperands& operands) {
  const auto& leaves = state_of(context).table->get<T>();
  const float* x = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    x = static_cast<const float*>(operands.a);
  } else {
    auto* const wide =
        reinterpret_cast<float*>(state_of(context).scratch(access, context, row_scratch_bytes(p)));
    leaves.to_f32(static_cast<const T*>(operands.a), wide, p.k);
    x = wide;
  }
  const T* const weights = static_cast<const T*>(operands.b);
  const T* const bias = static_cast<const T*>(operands.bias);
  U* const c = static_cast<U*>(operands.c);
  context.team().parallel_for(p.n, grain_rows(p.k), [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t most = 64;
    float sums[most];
    for (std::int64_t j = begin; j < end; j += most) {
      const std::int64_t count = std::min(most, end - j);
      leaves.row_products(x, weights + j * p.b_row, p.b_row, count, p.k, sums);
      for (std::int64_t i = 0; i < count; ++i) {
        float value = sums[i];
        if (bias != nullptr) value += static_cast<float>(bias[j + i]);
        if (p.accumulate) value += static_cast<float>(c[j + i]);
        c[j + i] = static_cast<U>(value);
      }
    }
  });
}

template <class T>
void multiply_row(const Access& access, Context& context, const Product& p,
                  const ProductOperands& operands) {
  if (p.output == DType::f32) return multiply_row<T, float>(access, context, p, operands);
  multiply_row<T, T>(access, context, p, operands);
}

bool is_native(Context& context, const Product& product) {
  return product.input == DType::f32 ||
         (product.input == DType::bf16 && state_of(context).native_bf16_products &&
          !context.kernel_options().widen_bf16);
}

State& state_with_products(Context& context) {
  State& state = state_of(context);
  if (!state.products) state.products = std::make_unique<ProductCache>();
  return state;
}

void multiply(const Access& access, Context& context, const GemmArgs& args) {
  State& state = state_with_products(context);
  const Product product = product_of(args);
  if (product.m == 0 || product.n == 0) return;
  const ProductOperands operands{
      TensorAddress::of(access, args.a), TensorAddress::of(access, args.b),
      TensorAddress::of(access, args.c), TensorAddress::of(access, args.bias)};
  if (is_row(product)) {
    if (product.input == DType::f32) return multiply_row<float>(access, context, product, operands);
    if (product.input == DType::f16) {
      return multiply_row<Float16>(access, context, product, operands);
    }
    return multiply_row<BFloat16>(access, context, product, operands);
  }
  if (is_native(context, product)) {
    state.products->run(access, context, product, operands);
  } else if (product.input == DType::bf16) {
    run_widened<BFloat16>(access, context, product, operands);
  } else {
    run_widened<Float16>(access, context, product, operands);
  }
}

}  // namespace

void gemm(const Access& access, Context& context, const GemmArgs& args) {
  gemm_unfused(cpu_backend(), access, context, args,
               [&](const GemmArgs& alone) { multiply(access, context, alone); });
}

void reserve_gemm(const Access& access, Context& context, const GemmArgs& args) {
  State& state = state_with_products(context);
  Product product = product_of(args);
  if (product.m == 0 || product.n == 0) return;
  if (is_row(product)) {
    if (row_scratch_bytes(product) > 0) {
      state.scratch(access, context, row_scratch_bytes(product));
    }
    return;
  }
  if (!is_native(context, product)) {
    const Blocks blocks(product);
    state.scratch(access, context, blocks.bytes());
    product.m = blocks.m;
    product.n = blocks.n;
    product.k = blocks.k;
    product.a_row = product.transpose_a ? blocks.m : blocks.k;
    product.b_row = product.transpose_b ? blocks.k : blocks.n;
    if (blocks.round) product.c_row = blocks.n;
    product.input = product.output = DType::f32;
  }
  state.products->reserve(context, product);
}

}  // namespace trident::cpu
