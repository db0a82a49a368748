#include "kernels/gemm.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/product_cache.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// Copies a bf16 operand as fp32.
void widen(const Access& access, Context& context, const Tensor& from, float* to) {
  const auto& leaves = state_of(context).table->bf16;
  const BFloat16* const source = data<BFloat16>(access, from);
  parallel_elements(context, from.numel(), grain_elements,
                    [&](std::int64_t begin, std::int64_t end) {
                      leaves.to_f32(source + begin, to + begin, end - begin);
                    });
}

}  // namespace

void gemm(const Access& access, Context& context, const GemmArgs& args) {
  State& state = state_of(context);
  if (!state.products) state.products = std::make_unique<ProductCache>();
  Product product;
  product.m = args.c.dim(0);
  product.n = args.c.dim(1);
  product.k = args.a.dim(args.transpose_a ? 0 : 1);
  product.a_row = args.a.dim(1);
  product.b_row = args.b.dim(1);
  product.c_row = args.c.dim(1);
  product.transpose_a = args.transpose_a;
  product.transpose_b = args.transpose_b;
  product.accumulate = args.accumulate;
  product.bias = args.bias.defined();
  product.input = args.a.dtype();
  product.output = args.c.dtype();
  if (product.m == 0 || product.n == 0) return;
  ProductOperands operands{TensorAddress::of(access, args.a), TensorAddress::of(access, args.b),
                           TensorAddress::of(access, args.c), TensorAddress::of(access, args.bias)};
  if (product.input == DType::f32 || state.native_bf16_products) {
    state.products->run(access, context, product, operands);
    return;
  }

  // No fast bf16 product: fp32 copies, an fp32 product, and rounding where c is bf16.
  const bool round = args.c.dtype() == DType::bf16;
  const std::int64_t a_size = args.a.numel(), b_size = args.b.numel(), c_size = args.c.numel();
  auto* a = reinterpret_cast<float*>(
      state.scratch(access, context,
                    static_cast<std::int64_t>(sizeof(float)) *
                        (a_size + b_size + product.n + 48 + (round ? c_size : 0))));
  const auto aligned = [](std::int64_t n) { return (n + 15) / 16 * 16; };
  float* const b = a + aligned(a_size);
  float* const bias = b + aligned(b_size);
  float* const c = bias + aligned(product.n);
  widen(access, context, args.a, a);
  widen(access, context, args.b, b);
  operands.a = a;
  operands.b = b;
  if (product.bias) {
    widen(access, context, args.bias, bias);
    operands.bias = bias;
  }
  product.input = product.output = DType::f32;
  if (round) {
    if (product.accumulate) widen(access, context, args.c, c);
    operands.c = c;
  }
  state.products->run(access, context, product, operands);
  if (round) {
    BFloat16* const out = data<BFloat16>(access, args.c);
    parallel_elements(context, c_size, grain_elements, [&](std::int64_t begin, std::int64_t end) {
      state.table->bf16.from_f32(c + begin, out + begin, end - begin);
    });
  }
}

}  // namespace trident::cpu
