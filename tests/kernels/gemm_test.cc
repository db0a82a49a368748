#include "kernels/gemm.h"

#include <cstddef>
#include <span>

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using GemmTest = KernelTest;

struct Size {
  std::int64_t m, n, k;
};

TEST_P(GemmTest, MatchesTheReferenceForEveryFlagAndOddSizes) {
  for (const auto& [m, n, k] : {Size{1, 1, 1}, Size{1, 67, 131}, Size{3, 17, 65}, Size{65, 3, 17},
                                Size{17, 257, 3}, Size{65, 64, 257}}) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, with_bias = flags & 8;
      const Values a = random(m * k, "a"), b = random(k * n, "b"), bias = random(n, "bias");
      Values want = reference::gemm(a, b, m, n, k, ta, tb);
      for (const DType output : {dtype, DType::f32}) {
        const Values c = random_of(output, m * n, "c");
        Values sum = want;
        for (std::int64_t i = 0; i < m * n; ++i) {
          if (accumulate) reference::at(sum, i) += reference::at(c, i);
          if (with_bias) reference::at(sum, i) += reference::at(bias, i % n);
        }
        const Tensor out = put_as(output, c, {m, n});
        gemm(context, {.a = put(a, ta ? Shape{k, m} : Shape{m, k}),
                       .b = put(b, tb ? Shape{n, k} : Shape{k, n}),
                       .c = out,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .accumulate = accumulate,
                       .bias = with_bias ? put(bias, {n}) : Tensor()});
        // bf16 inputs are exact, so an fp32 result is as good as from fp32 inputs.
        expect_near(out, sum, "c", output == DType::f32 ? 2e-6 : tolerance);
      }
    }
  }
}

// The sizes exceed those at which the implementation changes its algorithm and splits into blocks.
TEST_P(GemmTest, LargeProductsMatchTheReferenceAndRepeatTheirBits) {
  for (const auto& [m, n, k] : {Size{1, 970, 1000}, Size{3, 970, 1000}, Size{1930, 5, 3}}) {
    const Values a = random(m * k, "a"), b = random(k * n, "b"), bias = random(n, "bias");
    const Tensor a_rows = put(a, {m, k}), b_rows = put(b, {k, n});
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, accumulate = flags & 4, with_bias = flags & 8;
      const Tensor a_tensor = ta ? a_rows.view({k, m}) : a_rows;
      const Tensor b_tensor = tb ? b_rows.view({n, k}) : b_rows;
      Values first;
      for (int repeat = 0; repeat < 2; ++repeat) {
        const Tensor c = put(Values(static_cast<std::size_t>(m * n), 1.0), {m, n});
        gemm(context, {.a = a_tensor,
                       .b = b_tensor,
                       .c = c,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .accumulate = accumulate,
                       .bias = with_bias ? put(bias, {n}) : Tensor()});
        const Values got = get(c);
        if (repeat == 1) {
          EXPECT_EQ(got, first);
          continue;
        }
        first = got;
        // Checks one row and one column of c; all of c would take the naive reference too long.
        for (std::int64_t i = 0; i < m * n; ++i) {
          const std::int64_t row = i / n, column = i % n;
          if (row != m / 2 && column != n - 1) continue;
          const double before = accumulate ? 1 : 0;
          const double other = before + (with_bias ? reference::at(bias, column) : 0);
          double product = 0, size = std::abs(other);
          for (std::int64_t p = 0; p < k; ++p) {
            const double term = reference::at(a, ta ? p * m + row : row * k + p) *
                                reference::at(b, tb ? column * k + p : p * n + column);
            product += term;
            size += std::abs(term);
          }
          const double want = product + other;
          // cuBLASLt may round the product before it adds the old value of c, and round that sum
          // before it adds the bias.
          const double between = std::abs(product) + std::abs(product + before);
          const double rounded = std::abs(want) + (GetParam().device == On::cuda ? between : 0);
          ASSERT_NEAR(reference::at(got, i), want,
                      2e-6 * size + (dtype == DType::f32 ? 0 : 4e-3 * rounded))
              << "flags " << flags << ", k " << k;
        }
      }
    }
  }
}

// Tests the product that widens its operands first, on every processor, over several blocks of each
// edge.
TEST_P(GemmTest, WidenedProductsMatchTheReference) {
  Context widening(*device, 2, {.deterministic = GetParam().deterministic, .widen_bf16 = true});
  if (GetParam().device != On::cuda) cpu::use_isa(widening, GetParam().isa);
  const std::int64_t m = 1930, n = 970, k = 3;
  const Values a = random(m * k, "a"), b = random(k * n, "b");
  const auto there = [&](const Tensor& tensor) {
    const Tensor copy = widening.empty(tensor.shape(), tensor.dtype(), Category::activation);
    context.read_on_host(
        tensor, [&](std::span<const std::byte> bytes) { widening.copy_from_host(copy, bytes); });
    return copy;
  };
  for (const bool transposed : {false, true}) {
    const Tensor c = there(put(Values(static_cast<std::size_t>(m * n)), {m, n}));
    gemm(widening, {.a = there(put(a, transposed ? Shape{k, m} : Shape{m, k})),
                    .b = there(put(b, transposed ? Shape{n, k} : Shape{k, n})),
                    .c = c,
                    .transpose_a = transposed,
                    .transpose_b = transposed});
    const Tensor copy = put(Values(static_cast<std::size_t>(m * n)), {m, n});
    widening.read_on_host(
        c, [&](std::span<const std::byte> bytes) { context.copy_from_host(copy, bytes); });
    expect_near(copy, reference::gemm(a, b, m, n, k, transposed, transposed), "c");
  }
}

TEST_P(GemmTest, OverwritesTheOldValuesOfC) {
  for (const bool transpose_a : {false, true}) {
    const Tensor c = put_as(DType::f32, Values(6, NAN), {2, 3});
    gemm(context, {.a = put({1, 2}, transpose_a ? Shape{1, 2} : Shape{2, 1}),
                   .b = put({1, 1, 1}, {1, 3}),
                   .c = c,
                   .transpose_a = transpose_a});
    EXPECT_EQ(get(c), (Values{1, 1, 1, 2, 2, 2}));
  }
  const Tensor c = put_as(DType::f32, Values(500, NAN), {1, 500});
  gemm(context,
       {.a = put(Values(400, 1.0), {1, 400}), .b = put(Values(200000, 1.0), {400, 500}), .c = c});
  EXPECT_EQ(get(c), Values(500, 400.0));
}

// The sizes include odd ones and sizes for which libraries have fused kernels.
TEST_P(GemmTest, GeluAndItsGradientAreFusedWithTheProduct) {
  for (const auto& [m, n, k] : {Size{5, 17, 3}, Size{64, 128, 32}}) {
    const Values a = random(m * k, "a"), b = random(k * n, "b"), bias = random(n, "bias");
    const Shape shape{m, n};
    for (const bool with_bias : {false, true}) {
      Values product = reference::gemm(a, b, m, n, k, false, true);
      for (std::int64_t i = 0; with_bias && i < m * n; ++i) {
        reference::at(product, i) += reference::at(bias, i % n);
      }
      const Tensor y = empty(shape), pre_activation = empty(shape);
      gemm(context, {.a = put(a, {m, k}),
                     .b = put(b, {n, k}),
                     .c = y,
                     .transpose_b = true,
                     .bias = with_bias ? put(bias, {n}) : Tensor(),
                     .pre_activation = pre_activation});
      expect_near(pre_activation, product, "pre_activation");
      for (double& value : product) value = reference::gelu(value);
      expect_near(y, product, "y");
    }
    const Values x = random(m * n, "x");
    const Tensor grad = empty(shape);
    gemm(context,
         {.a = put(a, {m, k}), .b = put(b, {k, n}), .c = grad, .gelu_input = put(x, shape)});
    Values want = reference::gemm(a, b, m, n, k, false, false);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double h = 1e-6;
      want[i] *= (reference::gelu(x[i] + h) - reference::gelu(x[i] - h)) / (2 * h);
    }
    expect_near(grad, want, "grad", dtype == DType::f32 ? 5e-6 : tolerance);
  }
}

TEST_P(GemmTest, ABiasGradientIsFusedWithAWeightGradient) {
  for (const auto& [m, n, k] : {Size{5, 17, 3}, Size{64, 128, 32}, Size{130, 24, 300}}) {
    const Values a = random(k * m, "a"), b = random(k * n, "b");
    for (const DType output : {DType::f32, dtype}) {
      const Values before = random_of(output, m * n, "c"), bias = random_of(output, m, "bias");
      const Tensor c = put_as(output, before, {m, n}), bias_gradient = put_as(output, bias, {m});
      gemm(context, {.a = put(a, {k, m}),
                     .b = put(b, {k, n}),
                     .c = c,
                     .transpose_a = true,
                     .accumulate = true,
                     .bias_gradient = bias_gradient});
      Values want = reference::gemm(a, b, m, n, k, true, false), sums = bias;
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += before[i];
      for (std::int64_t i = 0; i < k * m; ++i) reference::at(sums, i % m) += reference::at(a, i);
      const double limit = output == DType::f32 ? 2e-6 : tolerance;
      expect_near(c, want, "c", limit);
      expect_near(bias_gradient, sums, "bias_gradient", limit);
    }
  }
}

TEST_P(GemmTest, NamesWrongShapesAndTypes) {
  const Tensor a = empty({3, 4}), b = empty({4, 5});
  const auto message = [&](const GemmArgs& args) -> std::string {
    try {
      gemm(context, args);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.a = a, .b = b, .c = empty({3, 4})}).find("gemm: got c [3, 4]"), 0u);
  EXPECT_NE(message({.a = a, .b = b, .c = empty({3, 5}), .transpose_b = true}).find("b [4, 5]"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = {}}).find("no c"), std::string::npos);
  EXPECT_NE(message({.a = a,
                     .b = context.empty({4, 5}, DType::f64, Category::activation),
                     .c = empty({3, 5})})
                .find("fp64"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = empty({3, 5}), .bias = empty({4})}).find("bias [4]"),
            std::string::npos);
  const Tensor c = empty({3, 5});
  EXPECT_NE(message({.a = a, .b = b, .c = c, .pre_activation = empty({5, 3})})
                .find("pre_activation [5, 3]"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = c, .accumulate = true, .gelu_input = empty({3, 5})})
                .find("gelu_input and accumulate"),
            std::string::npos);
  EXPECT_NE(message({.a = a, .b = b, .c = c, .bias_gradient = empty({3})})
                .find("bias_gradient without transpose_a"),
            std::string::npos);
  EXPECT_NE(
      message(
          {.a = a, .b = b, .c = c, .pre_activation = empty({3, 5}), .gelu_input = empty({3, 5})})
          .find("at most one"),
      std::string::npos);
}

TRIDENT_KERNEL_SUITE(GemmTest);

}  // namespace
}  // namespace trident
