#include "kernels/dropout.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

class DropoutTest : public KernelTest {
 protected:
  Values mask(float probability, std::uint64_t key, const Values& samples, std::int64_t sequence,
              std::int64_t rows, std::int64_t columns, std::int64_t first_row = 0) {
    const Tensor y = empty({rows, columns});
    dropout_add(
        context,
        {.dropout = {probability, key,
                     put_as(DType::i64, samples, {static_cast<std::int64_t>(samples.size())})},
         .x = put(Values(static_cast<std::size_t>(rows * columns), 1.0), {rows, columns}),
         .y = y,
         .sequence = sequence,
         .first_row = first_row});
    return get(y);
  }
};

TEST_P(DropoutTest, KeepsTheElementsOfTheHeadersFormula) {
  const Values samples = {3, 12345678901.0, 0};
  const std::uint64_t key = random_key(42, "layer.0.mlp");
  for (const std::int64_t columns : {1, 3, 17, 65, 600}) {
    const Values got = mask(0.25f, key, samples, 5, 11, columns, 2);
    for (std::int64_t t = 0; t < 11; ++t) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const double factor = reference::dropout_factor(
            0.25, key, static_cast<std::uint64_t>(reference::at(samples, (t + 2) / 5)),
            static_cast<std::uint64_t>((t + 2) % 5 * columns + i));
        ASSERT_NEAR(reference::at(got, t * columns + i), factor, 4e-3) << t << " " << i;
      }
    }
  }
}

TEST_P(DropoutTest, DropsTheAskedShareAndKeepsTheMean) {
  const Values got = mask(0.1f, 9, {5}, 200, 200, 500);
  double dropped = 0, total = 0;
  for (const double v : got) {
    dropped += v == 0;
    total += v;
  }
  EXPECT_NEAR(dropped / 1e5, 0.1, 0.004);  // four standard deviations
  EXPECT_NEAR(total / 1e5, 1, 0.006);
}

TEST_P(DropoutTest, AddsTheResidualInPlaceOfEither) {
  const Values x = random(4 * 33, "x"), residual = random(4 * 33, "residual");
  const Tensor samples = put_as(DType::i64, {8}, {1});
  Values want = residual;
  for (std::int64_t i = 0; i < 4 * 33; ++i) {
    reference::at(want, i) +=
        reference::at(x, i) * reference::dropout_factor(0.5, 1, 8, static_cast<std::uint64_t>(i));
  }
  for (const bool over_x : {true, false}) {
    const Tensor in = put(x, {4, 33}), rest = put(residual, {4, 33});
    const Tensor y = over_x ? in : rest;
    dropout_add(context,
                {.dropout = {0.5f, 1, samples}, .x = in, .residual = rest, .y = y, .sequence = 4});
    expect_near(y, want, "y");
  }
}

TEST_P(DropoutTest, ProbabilityZeroIsAPlainAddition) {
  const Values x = random(4 * 33, "x"), residual = random(4 * 33, "residual");
  const Tensor y = empty({4, 33});
  dropout_add(context, {.dropout = {}, .x = put(x, {4, 33}), .y = y});
  EXPECT_EQ(get(y), x);
  dropout_add(context, {.dropout = {}, .x = y, .residual = put(residual, {4, 33}), .y = y});
  Values want = x;
  for (std::size_t i = 0; i < x.size(); ++i) want[i] += residual[i];
  expect_near(y, want, "y");
}

TEST_P(DropoutTest, RefusesTooFewSamplesAndBadProbabilities) {
  const Tensor x = empty({4, 3}), samples = put_as(DType::i64, {8}, {1});
  EXPECT_THROW(dropout_add(context, {.dropout = {0.5f, 1, samples}, .x = x, .y = x, .sequence = 3}),
               Error);
  EXPECT_THROW(dropout_add(context, {.dropout = {1.0f, 1, samples}, .x = x, .y = x, .sequence = 4}),
               Error);
}

TRIDENT_KERNEL_SUITE(DropoutTest);

}  // namespace
}  // namespace trident
