#include "kernels/grouped_gemm.h"

#include <gmock/gmock.h>

#include "kernels/grouped_bias.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Case {
  std::int64_t experts, k, n;
  std::vector<std::int64_t> sizes;  // rows of each expert of the first source, then of the next
  std::int64_t behind = 0;          // rows that belong to none

  std::int64_t rows() const {
    std::int64_t rows = behind;
    for (const std::int64_t size : sizes) rows += size;
    return rows;
  }
  Values ends() const {
    Values ends;
    double end = 0;
    for (const std::int64_t size : sizes) ends.push_back(end += static_cast<double>(size));
    return ends;
  }
  // Calls f(group, row) for each row.
  template <class F>
  void each_row(F f) const {
    std::int64_t row = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      for (std::int64_t i = 0; i < sizes[g]; ++i) f(static_cast<std::int64_t>(g), row++);
    }
  }
};

// Experts with no row, with one, with all; several sources; sizes beyond a block.
std::vector<Case> cases() {
  return {{1, 1, 1, {1}},
          {3, 5, 7, {2, 0, 3}, 2},
          {4, 33, 65, {0, 0, 9, 0}},
          {2, 17, 130, {5, 1, 0, 4, 7, 0}},
          {3, 257, 49, {6, 100, 1}, 1},
          {2, 1030, 3, {2, 5, 95, 2}},
          {2, 4, 5, {300, 1, 0, 520}},
          {2, 3, 4, {0, 0}, 3},
          {1, 3, 4, {0}}};
}

class GroupedGemmTest : public KernelTest {
 protected:
  Tensor put_ends(const Case& c) {
    return put_as(DType::i64, c.ends(), {static_cast<std::int64_t>(c.sizes.size())});
  }
};

TEST_P(GroupedGemmTest, RowsAreMultipliedByTheMatrixOfTheirExpert) {
  for (const Case& c : cases()) {
    for (const bool transposed : {false, true}) {
      const Values a = random(c.rows() * c.k, "a"), b = random(c.experts * c.k * c.n, "b");
      Values want = random(c.rows() * c.n, "c");
      const Tensor got = put(want, {c.rows(), c.n});
      grouped_gemm(context, {.a = put(a, {c.rows(), c.k}),
                             .b = put(b, transposed ? Shape{c.experts, c.n, c.k}
                                                    : Shape{c.experts, c.k, c.n}),
                             .c = got,
                             .ends = put_ends(c),
                             .transpose_b = transposed});
      c.each_row([&](std::int64_t group, std::int64_t row) {
        const std::int64_t matrix = group % c.experts * c.k * c.n;
        for (std::int64_t j = 0; j < c.n; ++j) {
          double sum = 0;
          for (std::int64_t p = 0; p < c.k; ++p) {
            sum += reference::at(a, row * c.k + p) *
                   reference::at(b, matrix + (transposed ? j * c.k + p : p * c.n + j));
          }
          reference::at(want, row * c.n + j) = sum;
        }
      });
      expect_near(got, want, "c");
    }
  }
}

TEST_P(GroupedGemmTest, BiasesAndTheirGradientsAreThoseOfTheRowsExpert) {
  for (const Case& c : cases()) {
    for (const bool weighted : {false, true}) {
      const std::int64_t n = c.n, rows = c.rows();
      const Values x = random(rows * n, "x"), bias = random(c.experts * n, "bias"),
                   grad = random(rows * n, "grad"), start = random(c.experts * n, "start"),
                   weights = weighted ? random(rows, "weights")
                                      : Values(static_cast<std::size_t>(rows), 1.0);
      const Tensor weight_tensor = weighted ? put_as(DType::f32, weights, {rows}) : Tensor();
      const Tensor got = put(x, {rows, n}), bias_tensor = put(bias, {c.experts, n});
      const Tensor ends = put_ends(c);
      grouped_bias(context,
                   {.bias = bias_tensor, .weights = weight_tensor, .ends = ends, .x = got});
      const Tensor grad_bias = put_as(DType::f32, start, {c.experts, n});
      const Tensor grad_weights = put_as(DType::f32, weights, {rows});
      grouped_bias_backward(context, {.bias = bias_tensor,
                                      .weights = weight_tensor,
                                      .ends = ends,
                                      .grad = put(grad, {rows, n}),
                                      .grad_bias = grad_bias,
                                      .grad_weights = grad_weights});
      Values want = x, want_bias = start, want_weights = weights;
      c.each_row([&](std::int64_t group, std::int64_t row) {
        for (std::int64_t j = 0; j < n; ++j) {
          const std::int64_t at = group % c.experts * n + j;
          reference::at(want, row * n + j) += reference::at(weights, row) * reference::at(bias, at);
          reference::at(want_bias, at) +=
              reference::at(weights, row) * reference::at(grad, row * n + j);
          reference::at(want_weights, row) +=
              reference::at(grad, row * n + j) * reference::at(bias, at);
        }
      });
      expect_near(got, want, "x");
      expect_near(grad_bias, want_bias, "grad_bias", 1e-5);
      expect_near(grad_weights, want_weights, "grad_weights", 1e-5);
    }
  }
}

// A row alone has the same bits as among others, at any place and of any source.
TEST_P(GroupedGemmTest, OtherRowsChangeNoBitOfARow) {
  for (const auto& [k, n] : {std::pair{70, 61}, {515, 133}, {1100, 9}}) {
    const Case together{2, k, n, {3, 109, 2, 5}};
    const Values a = random(together.rows() * k, "a");
    const Tensor b = put(random(2 * k * n, "b"), {2, k, n}), b_t = b.view({2, n, k});
    for (const bool transposed : {false, true}) {
      const auto multiply = [&](const Values& rows, const Case& c) {
        const Tensor got = put(Values(static_cast<std::size_t>(c.rows() * n)), {c.rows(), n});
        grouped_gemm(context, {.a = put(rows, {c.rows(), k}),
                               .b = transposed ? b_t : b,
                               .c = got,
                               .ends = put_ends(c),
                               .transpose_b = transposed});
        return get(got);
      };
      const Values all = multiply(a, together);
      together.each_row([&](std::int64_t group, std::int64_t row) {
        if (row % 7 != 0 && row > 8) return;
        const auto slice = [](const Values& x, std::int64_t at, std::int64_t count) {
          return Values(x.begin() + at * count, x.begin() + (at + 1) * count);
        };
        Case alone{2, k, n, {0, 0}};
        alone.sizes[static_cast<std::size_t>(group % 2)] = 1;
        EXPECT_EQ(multiply(slice(a, row, k), alone), slice(all, row, n)) << "row " << row;
      });
    }
  }
}

TEST_P(GroupedGemmTest, WeightsGetTheSumsOfTheirRows) {
  for (const Case& c : cases()) {
    const Values a = random(c.rows() * c.k, "a"), b = random(c.rows() * c.n, "b");
    for (const DType output : {dtype, DType::f32}) {
      for (const bool accumulate : {false, true}) {
        Values want = random_of(output, c.experts * c.k * c.n, "c");
        const Tensor got = put_as(output, want, {c.experts, c.k, c.n});
        if (!accumulate) want = reference::zeros(c.experts * c.k * c.n);
        grouped_weight_gemm(context, {.a = put(a, {c.rows(), c.k}),
                                      .b = put(b, {c.rows(), c.n}),
                                      .c = got,
                                      .ends = put_ends(c),
                                      .accumulate = accumulate});
        c.each_row([&](std::int64_t group, std::int64_t row) {
          for (std::int64_t i = 0; i < c.k; ++i) {
            for (std::int64_t j = 0; j < c.n; ++j) {
              reference::at(want, (group % c.experts * c.k + i) * c.n + j) +=
                  reference::at(a, row * c.k + i) * reference::at(b, row * c.n + j);
            }
          }
        });
        expect_near(got, want, "c", output == DType::f32 ? 2e-6 : tolerance);
      }
    }
  }
}

// So ranks that hold an expert each, and one that holds all, add the same numbers in the same
// order.
TEST_P(GroupedGemmTest, SourcesAreAddedOneAfterTheOther) {
  const Case all{2, 40, 70, {300, 2, 5, 1, 0, 259}};
  const Values a = random(all.rows() * all.k, "a"), b = random(all.rows() * all.n, "b");
  const auto f32 = [&](std::int64_t) { return empty_f32({2, all.k, all.n}); };
  const Tensor together = f32(0);
  const auto rows = [](const Values& x, std::int64_t begin, std::int64_t end,
                       std::int64_t columns) {
    return Values(x.begin() + begin * columns, x.begin() + end * columns);
  };
  grouped_weight_gemm(context, {.a = put(a, {all.rows(), all.k}),
                                .b = put(b, {all.rows(), all.n}),
                                .c = together,
                                .ends = put_ends(all)});
  Values want = reference::zeros(2 * all.k * all.n);
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < 3; ++s) {
    const Case one{2, all.k, all.n, {all.sizes[2 * s], all.sizes[2 * s + 1]}};
    const std::int64_t end = begin + one.rows();
    const Tensor part = f32(0);
    grouped_weight_gemm(context, {.a = put(rows(a, begin, end, all.k), {one.rows(), all.k}),
                                  .b = put(rows(b, begin, end, all.n), {one.rows(), all.n}),
                                  .c = part,
                                  .ends = put_ends(one)});
    const Values sums = get(part);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      want[i] = static_cast<float>(want[i]) + static_cast<float>(sums[i]);
    }
    begin = end;
  }
  EXPECT_EQ(get(together), want);
}

TEST_P(GroupedGemmTest, ShapesThatDoNotFitAreRefused) {
  const Tensor a = empty({4, 3}), b = empty({2, 5, 3}), c = empty({4, 5});
  const auto ends = [&](std::int64_t n) {
    return context.empty({n}, DType::i64, Category::activation);
  };
  EXPECT_THAT(
      [&] {
        grouped_gemm(context, {a, b, c, ends(2), false});
      },
      ThrowsMessage<Error>(HasSubstr("grouped_gemm: got b")));
  EXPECT_THAT(
      [&] {
        grouped_gemm(context, {a, b, c, ends(3), true});
      },
      ThrowsMessage<Error>(HasSubstr("need an end for each expert of each source")));
  EXPECT_THAT(
      [&] {
        grouped_weight_gemm(context, {a, c, b, ends(2)});
      },
      ThrowsMessage<Error>(HasSubstr("grouped_weight_gemm: got c")));
}

TRIDENT_KERNEL_SUITE(GroupedGemmTest);

}  // namespace
}  // namespace trident
