#include "kernels/elementwise.h"

#include <numeric>

#include "core/exact_sum.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using ElementwiseTest = KernelTest;
constexpr std::int64_t lengths[] = {1, 3, 17, 65, 257, 70001};

TEST_P(ElementwiseTest, AddScaleAndFillReachEveryElementAndNoOther) {
  for (const std::int64_t n : lengths) {
    const Tensor full = put(random(n + 2, "y"), {n + 2});
    const Values before = get(full);
    const Values x = random(n, "x");
    add(context, put(x, {n}), full.flat(1, n));
    const Values after = get(full);
    EXPECT_EQ(after.front(), before.front());
    EXPECT_EQ(after.back(), before.back());
    Values want = before;
    for (std::int64_t i = 0; i < n; ++i) reference::at(want, i + 1) += reference::at(x, i);
    EXPECT_LT(relative_error(after, want), tolerance);

    const Tensor mixed = put_as(DType::f32, x, {n});
    add(context, put(x, {n}), mixed);
    scale(context, mixed, 0.5f);
    EXPECT_EQ(get(mixed), x);
    // The difference of two halves is exact.
    const Tensor moved = put_as(DType::f32, Values(static_cast<std::size_t>(n), 2.0), {n});
    fill(context, mixed, 3);
    lerp(context, moved, mixed, 0.25f);
    EXPECT_EQ(get(moved), Values(static_cast<std::size_t>(n), 2.25));
    EXPECT_EQ(get(mixed), Values(static_cast<std::size_t>(n), 3.0));
  }
}

TEST_P(ElementwiseTest, AddTakesEveryMixOfTypes) {
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      const Values x = random_of(DType::bf16, 67, "x"), y = random_of(DType::bf16, 67, "y");
      const Tensor out = put_as(to, y, {67});
      add(context, put_as(from, x, {67}), out);
      Values want = y;
      for (std::size_t i = 0; i < y.size(); ++i) want[i] += x[i];
      expect_near(out, want, "y", to == DType::f32 ? 1e-7 : 4e-3);
    }
  }
}

TEST_P(ElementwiseTest, AddTakesIntegersOfAnySize) {
  constexpr std::int64_t large = (std::int64_t{1} << 53) + 1;  // no double has this value
  std::vector<std::int64_t> x(70), y(70);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = large + static_cast<std::int64_t>(i), y[i] = -static_cast<std::int64_t>(3 * i);
  }
  const auto put = [&](const std::vector<std::int64_t>& values) {
    return context.from_host<std::int64_t>({70}, values, Category::activation);
  };
  const Tensor out = put(y);
  add(context, put(x), out);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  EXPECT_EQ(context.to_host<std::int64_t>(out), x);
  EXPECT_THROW(add(context, put(x), put_as(DType::f32, Values(70, 1.0), {70})), Error);
}

TEST_P(ElementwiseTest, CopyConvertsAsTheScalarTypesDo) {
  Values x = random_of(DType::f32, 2050, "x", 100);
  x[3] = 1e30, x[4] = -1e30, x[5] = 1e-6, x[6] = 65519.9, x[7] = 65520, x[8] = -0.0;
  const Tensor f32 = put_as(DType::f32, x, {2050});
  const Tensor f16 = context.empty({2050}, DType::f16, Category::activation);
  const Tensor bf16 = context.empty({2050}, DType::bf16, Category::activation);
  const Tensor f64 = context.empty({2050}, DType::f64, Category::activation);
  copy(context, f32, f16);
  copy(context, f32, bf16);
  copy(context, f16, f64);
  const auto halves = context.to_host<Float16>(f16);
  const auto shorts = context.to_host<BFloat16>(bf16);
  const auto wide = context.to_host<double>(f64);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(x[i]);
    ASSERT_EQ(halves[i].bits, Float16(value).bits) << value;
    ASSERT_EQ(shorts[i].bits, BFloat16(value).bits) << value;
    ASSERT_EQ(wide[i], static_cast<float>(Float16(value))) << value;
  }
}

TEST_P(ElementwiseTest, BFloat16StoresKeepNaNAndRoundTiesToEven) {
  const Values x = {NAN, INFINITY, -INFINITY, 1.00390625, 1.01171875, 3.4e38};
  for (std::int64_t n = 1; n <= 19; ++n) {  // full vectors and tails
    Values repeated;
    for (std::int64_t i = 0; i < n; ++i) {
      repeated.push_back(x[static_cast<std::size_t>(i) % x.size()]);
    }
    const Tensor out = context.empty({n}, DType::bf16, Category::activation);
    copy(context, put_as(DType::f32, repeated, {n}), out);
    const auto got = context.to_host<BFloat16>(out);
    for (std::size_t i = 0; i < repeated.size(); ++i) {
      // A GPU may choose the bits of a NaN.
      if (std::isnan(repeated[i])) {
        EXPECT_TRUE(std::isnan(static_cast<float>(got[i]))) << got[i].bits;
      } else {
        EXPECT_EQ(got[i].bits, BFloat16(static_cast<float>(repeated[i])).bits) << repeated[i];
      }
    }
  }
}

TEST_P(ElementwiseTest, BiasAndItsGradientMatchTheReference) {
  for (const std::int64_t columns : {1, 3, 17, 65, 257}) {
    const std::int64_t rows = 67;
    const Values x = random(rows * columns, "x"), bias = random(columns, "bias");
    const Values before = random_of(DType::f32, columns, "grad");
    Values want = x, sums = before;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      reference::at(want, i) += reference::at(bias, i % columns);
      reference::at(sums, i % columns) += reference::at(x, i);
    }
    const Tensor y = put(x, {rows, columns}), grad = put_as(DType::f32, before, {columns});
    bias_backward(context, y, grad);
    add_bias(context, y, put(bias, {columns}), y);  // in place
    expect_near(y, want, "y");
    expect_near(grad, sums, "grad_bias", 2e-6);
  }
}

TEST_P(ElementwiseTest, BiasGradientsOfManyRowsMatchTheReference) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{33, 264}, {2000, 17}, {20000, 8}}) {
    const Values grad = random(rows * columns, "grad");
    Values want(static_cast<std::size_t>(columns));
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      reference::at(want, i % columns) += reference::at(grad, i);
    }
    const Tensor sums = put_as(DType::f32, Values(want.size(), 0.0), {columns});
    bias_backward(context, put(grad, {rows, columns}), sums);
    expect_near(sums, want, "sums", 5e-6);
  }
}

TEST_P(ElementwiseTest, SumsOfManyElementsMatchTheReference) {
  for (const std::int64_t n : {4096, 4097, 20003}) {
    const Values x = random(n, "x");
    const Tensor total = put_as(DType::f64, {7.0}, {1});
    sum(context, put(x, {n}), total);
    EXPECT_NEAR(get(total)[0], std::accumulate(x.begin(), x.end(), 0.0), 1e-9);
  }
}

TEST_P(ElementwiseTest, SumsAreInIndexOrderAndSquareSumsByBlock) {
  const Values x = random_of(DType::f32, 1000, "x");
  const Tensor f32 = put_as(DType::f32, x, {1000});
  const Tensor total = context.empty({1}, DType::f64, Category::activation);
  sum(context, f32, total);
  double want = 0;
  for (const double v : x) want += v;
  EXPECT_EQ(get(total)[0], want);

  const Tensor out = context.empty({16}, DType::f64, Category::activation);
  square_sums(context, f32, 65, out);
  Values blocks(16, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) blocks[i / 65] += x[i] * x[i];
  expect_near(out, blocks, "square sums", 1e-14);
  // A block's sum is the same at every position of the block.
  const Tensor last = context.empty({1}, DType::f64, Category::activation);
  square_sums(context, f32.flat(65 * 7, 65), 65, last);
  EXPECT_EQ(get(last)[0], get(out)[7]);
}

// More tensors than one launch of a GPU takes; some at addresses that allow no wide access.
TEST_P(ElementwiseTest, SquareSumsOfAllAreThoseOfEach) {
  constexpr std::int64_t count = 150, block = 64;
  const std::int64_t most = 41000;
  const Tensor x = put(random(most + 3 * count, "x"), {most + 3 * count});
  const std::int64_t blocks_most = (most + block - 1) / block;
  const auto sums = [&] {
    return put_as(DType::f64, Values(static_cast<std::size_t>(2 * blocks_most), -1.0),
                  {2 * blocks_most});
  };
  const Tensor each = sums(), together = sums();
  std::vector<SquareSumsArgs> all;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t n = i == 70 ? most : i % 9 == 0 ? 0 : i * 31 % 200;
    const std::int64_t blocks = (n + block - 1) / block;
    const Tensor part = x.flat(3 * i, n);
    square_sums(context, part, block, each.flat(at, blocks));
    all.push_back({.x = part, .out = together.flat(at, blocks)});
    at += blocks;
  }
  square_sums(context, all, block);
  EXPECT_GT(get(each)[0], 0);
  EXPECT_EQ(get(each), get(together));
}

TEST_P(ElementwiseTest, NormalValuesDependOnTheGlobalIndexAlone) {
  const std::int64_t rows = 7, columns = 10;
  const Tensor full = empty({rows, columns});
  fill_normal(context, {.x = full,
                        .key = 5,
                        .deviation = 2,
                        .mean = 1,
                        .global_rows = rows,
                        .global_columns = columns});
  const Values all = get(full);
  EXPECT_NEAR(all[13], 2 * double{random_normal(5, 13)} + 1, dtype == DType::f32 ? 1e-6 : 2e-2);
  // The slice begins in the middle and extends past the last row and column of the global tensor.
  const Tensor part = empty({4, 5});
  fill_normal(context, {.x = part,
                        .key = 5,
                        .deviation = 2,
                        .mean = 1,
                        .row_begin = 5,
                        .column_begin = 7,
                        .global_rows = rows,
                        .global_columns = columns});
  const Values got = get(part);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < 5; ++c) {
      const bool inside = r + 5 < rows && c + 7 < columns;
      EXPECT_EQ(reference::at(got, r * 5 + c),
                inside ? reference::at(all, (r + 5) * columns + c + 7) : 0.0);
    }
  }
}

TEST_P(ElementwiseTest, RefusesUnequalCountsAndTypes) {
  EXPECT_THROW(add(context, empty({3}), empty({4})), Error);
  EXPECT_THROW(copy(context, context.empty({3}, DType::i32, Category::activation), empty({3})),
               Error);
  EXPECT_THROW(square_sums(context, empty_f32({3}), 0, empty_f32({3})), Error);
  EXPECT_THROW(add_bias(context, empty({3, 4}), empty({3}), empty({3, 4})), Error);
}

// Squares of a tensor mostly have the same digits of the exact sum, and some lie at the border of
// two digits.
TEST_P(ElementwiseTest, ExactSumOfLikeValuesHasTheDigitsOfTheHosts) {
  for (const int exponent : {0, 14, 37, 900}) {
    for (const std::int64_t n : {1, 31, 257, 20000}) {
      Values values = random(n, "values");
      ExactSum want;
      for (std::int64_t i = 0; i < n; ++i) {
        double& value = reference::at(values, i);
        value = std::ldexp(value * value, exponent + static_cast<int>(i % 2));
        if (i % 100 == 99) value = 0;
        want.add(value);
      }
      const Tensor state = context.empty({ExactSum::limbs + 1}, DType::i64, Category::workspace);
      fill(context, state, 0);
      exact_sum(context, put_as(DType::f64, values, {n}), state);
      const auto digits = want.state();
      EXPECT_EQ(context.to_host<std::int64_t>(state),
                std::vector<std::int64_t>(digits.begin(), digits.end()));
    }
  }
}

TEST_P(ElementwiseTest, ExactSumHasTheDigitsOfTheHostsInAnyOrder) {
  Values values = random(3000, "values");
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i * 37 % 2000) - 1000);
  }
  for (const double special : {0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1e300}) {
    values.push_back(special);
  }
  const auto sum_on_host = [](const Values& of) {
    ExactSum sum;
    for (const double value : of) sum.add(value);
    const auto state = sum.state();
    return std::vector<std::int64_t>(state.begin(), state.end());
  };
  const auto sum_here = [&](const Values& of) {
    const Shape digits{ExactSum::limbs + 1};
    const Tensor state = context.empty(digits, DType::i64, Category::workspace);
    fill(context, state, 0);
    const auto half = static_cast<std::int64_t>(of.size() / 2);
    const Tensor x = put_as(DType::f64, of, {static_cast<std::int64_t>(of.size())});
    exact_sum(context, x.flat(0, half), state);  // added to, the second time
    exact_sum(context, x.flat(half, x.numel() - half), state);
    return context.to_host<std::int64_t>(state);
  };
  EXPECT_EQ(sum_here(values), sum_on_host(values));
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(sum_here(values), sum_on_host(values));
  values[7] = NAN;
  values[8] = INFINITY;
  const auto got = sum_here(values);
  EXPECT_EQ(got.back(), 2);
  EXPECT_EQ(got, sum_on_host(values));
}

TRIDENT_KERNEL_SUITE(ElementwiseTest);

}  // namespace
}  // namespace trident
