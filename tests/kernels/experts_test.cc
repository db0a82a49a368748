#include "kernels/experts.h"

#include <gmock/gmock.h>

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using testing::ElementsAre;

class ExpertsTest : public KernelTest {
 protected:
  struct Sorted {
    Tensor ends, rows, pairs;
  };
  Sorted sort(const Values& experts, std::int64_t topk, std::int64_t count) {
    const auto pairs = static_cast<std::int64_t>(experts.size());
    const auto numbers = [&](Shape shape) {
      return context.empty(shape, DType::i32, Category::activation);
    };
    const Sorted s{context.empty({count}, DType::i64, Category::activation),
                   numbers({pairs / topk, topk}), numbers({pairs})};
    sort_by_expert(context, {.experts = put_as(DType::i32, experts, {pairs / topk, topk}),
                             .ends = s.ends,
                             .rows = s.rows,
                             .pairs = s.pairs});
    return s;
  }
};

TEST_P(ExpertsTest, PairsAreSortedByExpertThenByToken) {
  const Sorted s = sort({2, 0, 0, 2, 2, 1}, 2, 4);
  EXPECT_THAT(context.to_host<std::int64_t>(s.ends), ElementsAre(2, 3, 6, 6));
  EXPECT_THAT(context.to_host<std::int32_t>(s.rows), ElementsAre(3, 0, 1, 4, 5, 2));
  EXPECT_THAT(context.to_host<std::int32_t>(s.pairs), ElementsAre(1, 2, 5, 0, 3, 4));
}

TEST_P(ExpertsTest, PairsOfOtherNumbersGetNoRow) {
  const Sorted s = sort({1, -1, 4, 1, 0, 5}, 3, 4);
  EXPECT_THAT(context.to_host<std::int64_t>(s.ends), ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(context.to_host<std::int32_t>(s.rows), ElementsAre(1, -1, -1, 2, 0, -1));
  EXPECT_THAT(context.to_host<std::int32_t>(s.pairs), ElementsAre(4, 0, 3, -1, -1, -1));
  EXPECT_THAT(context.to_host<std::int64_t>(sort({-1, -1}, 1, 1).ends), ElementsAre(0));
}

TEST_P(ExpertsTest, ManyPairsAreAPermutation) {
  constexpr std::int64_t count = 5000, experts = 37;
  Values chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen.push_back(static_cast<double>(i * i % 101 * 7 % experts));
  }
  const Sorted s = sort(chosen, 2, experts);
  const auto ends = context.to_host<std::int64_t>(s.ends);
  const auto rows = context.to_host<std::int32_t>(s.rows),
             pairs = context.to_host<std::int32_t>(s.pairs);
  std::int64_t r = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t i = 0; i < count; ++i) {
      if (reference::at(chosen, i) != static_cast<double>(e)) continue;
      ASSERT_EQ(pairs[static_cast<std::size_t>(r)], i);
      ASSERT_EQ(rows[static_cast<std::size_t>(i)], r);
      ++r;
    }
    ASSERT_EQ(ends[static_cast<std::size_t>(e)], r);
  }
  EXPECT_EQ(r, count);
}

// Two samples of three positions, of which the call has rows 1 to 4.
TEST_P(ExpertsTest, PairsBeyondTheCapacityAreDroppedFromTheEndOfASample) {
  const Tensor counts = put_as(DType::i64, {0, 1, 1, 0, 0, 0}, {2, 3}),
               kept = context.empty({4, 2}, DType::i32, Category::activation);
  drop_pairs(context, {.experts = put_as(DType::i32, {0, 1, 0, 1, 0, 2, 0, 2}, {4, 2}),
                       .counts = counts,
                       .capacity = 2,
                       .sequence = 3,
                       .first_row = 1,
                       .kept = kept});
  EXPECT_THAT(context.to_host<std::int32_t>(kept), ElementsAre(0, 1, 0, -1, 0, 2, 0, 2));
  EXPECT_THAT(context.to_host<std::int64_t>(counts), ElementsAre(2, 3, 1, 2, 0, 2));
  drop_pairs(context, {.experts = put_as(DType::i32, {2, 0}, {1, 2}),
                       .counts = counts,
                       .capacity = 2,
                       .sequence = 3,
                       .first_row = 5,
                       .kept = kept.rows(0, 1)});
  EXPECT_THAT(context.to_host<std::int32_t>(kept.rows(0, 1)), ElementsAre(-1, -1));
}

TEST_P(ExpertsTest, ManyPairsAreDroppedInOrder) {
  constexpr std::int64_t tokens = 900, experts = 3, capacity = 250;
  Values chosen, want;
  std::vector<std::int64_t> counts(experts);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t e = t * t % 7 % experts;
    chosen.push_back(static_cast<double>(e));
    want.push_back(++counts[static_cast<std::size_t>(e)] > capacity ? -1 : static_cast<double>(e));
  }
  const Tensor kept = context.empty({tokens, 1}, DType::i32, Category::activation);
  drop_pairs(context, {.experts = put_as(DType::i32, chosen, {tokens, 1}),
                       .counts = put_as(DType::i64, {0, 0, 0}, {1, experts}),
                       .capacity = capacity,
                       .sequence = tokens,
                       .kept = kept});
  const auto got = context.to_host<std::int32_t>(kept);
  EXPECT_EQ(Values(got.begin(), got.end()), want);
  EXPECT_GT(std::count(want.begin(), want.end(), -1), 0);
}

TEST_P(ExpertsTest, RowsAreCopiedAndAddedUp) {
  for (const std::int64_t columns : {1, 19, 1030}) {
    constexpr std::int64_t tokens = 4, topk = 3;
    const Values pairs = {5, 0, 11, -1, 7, 3}, rows = {0, 2, 1, -1, 3, -1, -1, -1, -1, 5, 5, 4};
    const Values x = random(tokens * columns, "x"), old = random(tokens * columns, "old");
    const Tensor gathered = empty({6, columns});
    gather_rows(context, {.x = put(x, {tokens, columns}),
                          .indices = put_as(DType::i32, pairs, {6}),
                          .divisor = topk,
                          .y = gathered});
    Values want;
    for (const double pair : pairs) {
      for (std::int64_t j = 0; j < columns; ++j) {
        want.push_back(
            pair < 0 ? 0 : reference::at(x, static_cast<std::int64_t>(pair) / topk * columns + j));
      }
    }
    EXPECT_EQ(get(gathered), want);
    for (const bool accumulate : {false, true}) {
      const Tensor y = put(old, {tokens, columns});
      sum_rows(context, {.x = gathered,
                         .rows = put_as(DType::i32, rows, {tokens, topk}),
                         .y = y,
                         .accumulate = accumulate});
      Values sums = accumulate ? old : reference::zeros(tokens * columns);
      for (std::int64_t i = 0; i < tokens * topk; ++i) {
        const auto row = static_cast<std::int64_t>(reference::at(rows, i));
        for (std::int64_t j = 0; row >= 0 && j < columns; ++j) {
          reference::at(sums, i / topk * columns + j) += reference::at(want, row * columns + j);
        }
      }
      expect_near(y, sums, "sums");
    }
  }
}

// A token's sum is rounded once, in the order of its experts.
TEST_P(ExpertsTest, SumsAreRoundedOnce) {
  const double little = dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  const Tensor y = empty({1, 1});
  sum_rows(context, {.x = put({1, little, little}, {3, 1}),
                     .rows = put_as(DType::i32, {0, 1, 2}, {1, 3}),
                     .y = y});
  EXPECT_EQ(get(y)[0], dtype == DType::f32 ? 1 : 1 + 2 * little);
}

TEST_P(ExpertsTest, TheActivationAndItsGradientsMatchTheReference) {
  for (const std::int64_t f : {1, 13, 100}) {
    constexpr std::int64_t rows = 3;
    const Values x = random(rows * 2 * f, "x"), grad_y = random(rows * f, "grad_y");
    const Values weights = {0.25, 0, 3};
    const auto forward = [&](const Values& of_x, const Values& of_weights) {
      Values y = reference::swiglu(of_x, f);
      for (std::int64_t i = 0; i < rows * f; ++i) {
        reference::at(y, i) *= reference::at(of_weights, i / f);
      }
      return y;
    };
    const Tensor x_tensor = put(x, {rows, 2 * f}),
                 weight_tensor = put_as(DType::f32, weights, {rows});
    const Tensor y = empty({rows, f});
    expert_activation(context, {.x = x_tensor, .weights = weight_tensor, .y = y});
    expect_near(y, forward(x, weights), "y");

    const Tensor grad = put(grad_y, {rows, f}), grad_weights = empty_f32({rows});
    expert_activation_backward(context, {.x = x_tensor,
                                         .weights = weight_tensor,
                                         .grad_y = grad,
                                         .grad_x = x_tensor,
                                         .grad_weights = grad_weights,
                                         .y = grad});
    EXPECT_EQ(get(grad), get(y));
    expect_near(x_tensor,
                reference::numeric_gradient([&](const Values& v) { return forward(v, weights); }, x,
                                            grad_y),
                "grad_x");
    expect_near(grad_weights,
                reference::numeric_gradient([&](const Values& v) { return forward(x, v); }, weights,
                                            grad_y),
                "grad_weights", 1e-5);
  }
}

// gpt-oss's unit, with values within and beyond its limit.
TEST_P(ExpertsTest, GatedUnitsAndTheirGradientsMatchTheReference) {
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t f : {1, 13, 100}) {
      constexpr std::int64_t rows = 3;
      const GatedUnit unit{.alpha = 1.5f, .limit = 2, .shift = 0.5f, .interleaved = interleaved};
      Values x = random(rows * 2 * f, "x");
      for (double& value : x) value *= 4;  // exact
      const Values grad_y = random(rows * f, "grad_y"), weights = {0.25, 0, 3};
      const auto forward = [&](const Values& of_x, const Values& of_weights) {
        Values y;
        for (std::int64_t i = 0; i < rows * f; ++i) {
          const std::int64_t row = i / f * 2 * f, column = i % f;
          const double gate =
              std::min(2.0, reference::at(of_x, row + (interleaved ? 2 * column : column)));
          const double up = std::clamp(
              reference::at(of_x, row + (interleaved ? 2 * column + 1 : column + f)), -2.0, 2.0);
          y.push_back(reference::at(of_weights, i / f) * (up + 0.5) * gate /
                      (1 + std::exp(-1.5 * gate)));
        }
        return y;
      };
      const Tensor x_tensor = put(x, {rows, 2 * f}),
                   weight_tensor = put_as(DType::f32, weights, {rows});
      const Tensor y = empty({rows, f});
      expert_activation(context, {.x = x_tensor, .weights = weight_tensor, .y = y, .unit = unit});
      expect_near(y, forward(x, weights), "y");

      const Tensor grad = put(grad_y, {rows, f}), grad_weights = empty_f32({rows});
      expert_activation_backward(context, {.x = x_tensor,
                                           .weights = weight_tensor,
                                           .grad_y = grad,
                                           .grad_x = x_tensor,
                                           .grad_weights = grad_weights,
                                           .y = grad,
                                           .unit = unit});
      EXPECT_EQ(get(grad), get(y));
      expect_near(x_tensor,
                  reference::numeric_gradient([&](const Values& v) { return forward(v, weights); },
                                              x, grad_y),
                  "grad_x");
      expect_near(grad_weights,
                  reference::numeric_gradient([&](const Values& v) { return forward(x, v); },
                                              weights, grad_y),
                  "grad_weights", 1e-5);
    }
  }
}

TEST_P(ExpertsTest, TheGateAndItsGradientsMatchTheReference) {
  for (const std::int64_t h : {1, 13, 160}) {
    constexpr std::int64_t rows = 3;
    const Values x = random(rows * h, "x"), grad_y = random(rows * h, "grad_y"),
                 start = random(rows * h, "start");
    const Values gates = {0.25, -2, 30};
    const auto forward = [&](const Values& of_x, const Values& of_gates) {
      Values y = start;
      for (std::int64_t i = 0; i < rows * h; ++i) {
        reference::at(y, i) +=
            reference::at(of_x, i) / (1 + std::exp(-reference::at(of_gates, i / h)));
      }
      return y;
    };
    const Tensor x_tensor = put(x, {rows, h}), gate_tensor = put(gates, {rows, 1}),
                 y = put(start, {rows, h});
    gate_rows(context, {.x = x_tensor, .gates = gate_tensor, .y = y});
    expect_near(y, forward(x, gates), "y");

    const Tensor grad_gates = empty({rows, 1});
    gate_rows_backward(context, {.x = x_tensor,
                                 .gates = gate_tensor,
                                 .grad_y = put(grad_y, {rows, h}),
                                 .grad_x = x_tensor,
                                 .grad_gates = grad_gates});
    expect_near(
        x_tensor,
        reference::numeric_gradient([&](const Values& v) { return forward(v, gates); }, x, grad_y),
        "grad_x");
    expect_near(
        grad_gates,
        reference::numeric_gradient([&](const Values& v) { return forward(x, v); }, gates, grad_y),
        "grad_gates");
  }
}

TRIDENT_KERNEL_SUITE(ExpertsTest);

}  // namespace
}  // namespace trident
