#include "kernels/optimizer.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using OptimizerTest = KernelTest;

TEST_P(OptimizerTest, AdamWFollowsTheReferenceOverSteps) {
  for (const std::int64_t n : {1, 3, 17, 257, 70001}) {
    Values w = random_of(DType::f32, n, "w"), m = reference::zeros(n), v = m;
    const Tensor weight = put_as(DType::f32, w, {n}), m1 = put_as(DType::f32, m, {n}),
                 m2 = put_as(DType::f32, v, {n});
    const Tensor model =
        dtype == DType::f32 ? Tensor() : context.empty({n}, dtype, Category::parameter);
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6, decay = 0.1, clip = 0.5;
    for (int step = 1; step <= 5; ++step) {
      const Values g = random(n, "g" + std::to_string(step), 1e-2);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double gradient = clip * g[i];
        w[i] -= lr * decay * w[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        w[i] -= lr * m[i] / (1 - std::pow(beta1, step)) /
                (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + epsilon);
      }
      adam(context, {.weight = weight,
                     .gradient = put(g, {n}),
                     .moment1 = m1,
                     .moment2 = m2,
                     .model_weight = model,
                     .learning_rate = lr,
                     .beta1 = beta1,
                     .beta2 = beta2,
                     .epsilon = epsilon,
                     .weight_decay = decay,
                     .gradient_scale = static_cast<float>(clip),
                     .step = step});
    }
    expect_near(weight, w, "weight", 5e-7);
    expect_near(m1, m, "moment1", 5e-7);
    expect_near(m2, v, "moment2", 5e-7);
    if (model) {
      const Values got = get(model);
      const auto exact = context.to_host<float>(weight);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], held(dtype, exact[i]));
    }
  }
}

TEST_P(OptimizerTest, AdamAddsDecayToTheGradient) {
  const std::int64_t n = 70;
  Values w = random_of(DType::f32, n, "w"), m = reference::zeros(n), v = m;
  const Tensor weight = put_as(DType::f32, w, {n}), m1 = put_as(DType::f32, m, {n}),
               m2 = put_as(DType::f32, v, {n});
  for (int step = 1; step <= 4; ++step) {
    const Values g = random(n, "g" + std::to_string(step), 1e-2);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double gradient = 0.5 * g[i] + 0.1 * w[i];
      m[i] = 0.9 * m[i] + 0.1 * gradient;
      v[i] = 0.999 * v[i] + 0.001 * gradient * gradient;
      w[i] -= 1e-2 * m[i] / (1 - std::pow(0.9, step)) /
              (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-6);
    }
    adam(context, {.weight = weight,
                   .gradient = put(g, {n}),
                   .moment1 = m1,
                   .moment2 = m2,
                   .learning_rate = 1e-2,
                   .epsilon = 1e-6,
                   .weight_decay = 0.1,
                   .decoupled = false,
                   .gradient_scale = 0.5f,
                   .step = step});
  }
  expect_near(weight, w, "weight", 1e-6);
}

// Adafactor in fp64, on gradients that are halved first.
struct AdafactorReference {
  std::int64_t rows, columns;
  double lr, decay;
  Values weight, row, column;

  void step(const Values& g, int step, double rate) {
    const double n = static_cast<double>(rows * columns);
    Values row_sum(row.size()), column_sum(column.size()), u(weight.size());
    double squares = 0, mean = 0, size = 0;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double square = 0.25 * g[i] * g[i];
      row_sum[i / column.size()] += square;
      column_sum[i % column.size()] += square;
      squares += weight[i] * weight[i];
    }
    for (std::size_t r = 0; r < row.size(); ++r) {
      row[r] += rate * (row_sum[r] / static_cast<double>(columns) - row[r]);
      mean += row[r] / static_cast<double>(rows);
    }
    for (std::size_t c = 0; c < column.size(); ++c) {
      column[c] += rate * (column_sum[c] / static_cast<double>(rows) - column[c]);
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double variance = row[i / column.size()] * column[i % column.size()] / mean;
      u[i] = 0.5 * g[i] / std::sqrt(variance);
      size += u[i] * u[i];
    }
    const double alpha = std::max(1e-3, std::sqrt(squares / n)) *
                         std::min(lr, 1 / std::sqrt(step)) / std::max(1.0, std::sqrt(size / n));
    for (std::size_t i = 0; i < weight.size(); ++i) {
      weight[i] += -lr * decay * weight[i] - alpha * u[i];
    }
  }
};

// Compares one matrix with fp64, as one part or as two parts that meet inside a row.
TEST_P(OptimizerTest, AdafactorFollowsTheReferenceOverSteps) {
  for (const auto& [rows, columns] : {std::pair{5, 7}, std::pair{33, 300}, std::pair{1, 9}}) {
    const std::int64_t n = rows * columns;
    for (const std::int64_t cut : {n, n / 3 + 2}) {
      AdafactorReference want{.rows = rows,
                              .columns = columns,
                              .lr = 0.05,
                              .decay = 0.1,
                              .weight = random_of(DType::f32, n, "w"),
                              .row = Values(static_cast<std::size_t>(rows)),
                              .column = Values(static_cast<std::size_t>(columns))};
      const Tensor weight = put_as(DType::f32, want.weight, {n});
      const Tensor row_state = put_as(DType::f32, want.row, {rows}),
                   column_state = put_as(DType::f32, want.column, {columns}),
                   factors = empty_f32({rows});
      for (int step = 1; step <= 4; ++step) {
        const Values g = random(n, "g" + std::to_string(step), 0.1);
        const double rate = std::pow(step, -0.8);
        want.step(g, step, rate);

        const Tensor gradient = put(g, {n});
        const auto zeros = [&](std::int64_t count) {
          return put_as(DType::f64, Values(static_cast<std::size_t>(count)), {count});
        };
        const Tensor row_sums = zeros(rows), column_sums = zeros(columns), sizes = zeros(2);
        std::vector<AdafactorPart> parts;
        for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, n}}) {
          if (begin == end) continue;
          parts.push_back({.weight = weight.flat(begin, end - begin),
                           .gradient = gradient.flat(begin, end - begin),
                           .begin = begin,
                           .columns = columns,
                           .gradient_scale = 0.5f});
        }
        for (const AdafactorPart& part : parts) {
          adafactor_squares(context, {part, row_sums, column_sums, sizes.flat(1, 1)});
        }
        adafactor_factors(context, {.row_sums = row_sums,
                                    .column_sums = column_sums,
                                    .row_state = row_state,
                                    .column_state = column_state,
                                    .factors = factors,
                                    .row_count = rows,
                                    .column_count = columns,
                                    .mean_of_rows = step % 2 == 0,
                                    .rate = static_cast<float>(rate)});
        for (const AdafactorPart& part : parts) {
          adafactor_size(context, {part, factors, column_state, sizes.flat(0, 1)});
        }
        for (const AdafactorPart& part : parts) {
          adafactor_update(context,
                           {part, factors, column_state, sizes, n, want.lr, want.decay, step});
        }
      }
      expect_near(weight, want.weight, "weight", 2e-6);
      expect_near(row_state, want.row, "rows", 1e-6);
      expect_near(column_state, want.column, "columns", 1e-6);
    }
  }
}

TEST_P(OptimizerTest, SgdFollowsTheReferenceOverSteps) {
  const std::int64_t n = 257;
  for (const double momentum : {0.0, 0.9}) {
    Values w = random_of(DType::f32, n, "w"), buffer = reference::zeros(n);
    const Tensor weight = put_as(DType::f32, w, {n});
    // The old contents of the buffer before the first step don't matter.
    const Tensor kept = momentum > 0 ? put_as(DType::f32, Values(w.size(), NAN), {n}) : Tensor();
    for (int step = 1; step <= 4; ++step) {
      const Values g = random_of(DType::f32, n, "g" + std::to_string(step));
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] -= 0.01 * 0.1 * w[i];
        buffer[i] = momentum * buffer[i] + g[i];
        w[i] -= 0.01 * buffer[i];
      }
      sgd(context, {.weight = weight,
                    .gradient = put_as(DType::f32, g, {n}),
                    .momentum_buffer = kept,
                    .learning_rate = 0.01,
                    .momentum = momentum,
                    .weight_decay = 0.1,
                    .step = step});
    }
    expect_near(weight, w, "weight", 5e-7);
    if (kept) expect_near(kept, buffer, "buffer", 5e-7);
  }
}

// More parameters than one launch of a GPU takes. They are parts of large tensors, some at
// addresses that allow no wide access, and some have a gradient of another type.
TEST_P(OptimizerTest, UpdatesOfAllAreThoseOfEach) {
  constexpr int count = 100;
  std::vector<std::int64_t> sizes, offsets;
  std::int64_t n = 0;
  for (int i = 0; i < count; ++i) {
    sizes.push_back(i == 50 ? 40001 : i % 7 == 0 ? 0 : i * 37 % 300);
    offsets.push_back(n);
    n += i % 3 == 0 ? sizes.back() : (sizes.back() + 15) / 16 * 16;
  }
  struct Set {
    Tensor weight, gradient, wide_gradient, m1, m2, model;
  };
  const auto set = [&] {
    return Set{put_as(DType::f32, random_of(DType::f32, n, "w"), {n}),
               put(random(n, "g"), {n}),
               put_as(DType::f32, random(n, "g"), {n}),
               put_as(DType::f32, random(n, "m"), {n}),
               put_as(DType::f32, Values(static_cast<std::size_t>(n), 0.5), {n}),
               dtype == DType::f32 ? Tensor() : put(random(n, "model"), {n})};
  };
  const auto part = [&](const Tensor& x, std::size_t i) {
    return x ? x.flat(offsets[i], sizes[i]) : Tensor();
  };
  const auto gradient = [&](const Set& of, std::size_t i) {
    return part(i % 11 == 5 ? of.wide_gradient : of.gradient, i);
  };
  const auto expect_same = [&](const Set& a, const Set& b) {
    for (const auto& [x, y] :
         {std::pair(a.weight, b.weight), {a.m1, b.m1}, {a.m2, b.m2}, {a.model, b.model}}) {
      if (!x) continue;
      EXPECT_EQ(get(x), get(y));
    }
  };
  Set each = set(), together = set();
  std::vector<AdamArgs> all;
  for (std::size_t i = 0; i < count; ++i) {
    const auto args = [&](const Set& of) {
      return AdamArgs{.weight = part(of.weight, i),
                      .gradient = gradient(of, i),
                      .moment1 = part(of.m1, i),
                      .moment2 = part(of.m2, i),
                      .model_weight = part(of.model, i),
                      .learning_rate = 0.01 * static_cast<double>(i % 5),
                      .weight_decay = i % 2 == 0 ? 0.1 : 0.0};
    };
    if (sizes[i] > 0) adam(context, args(each));
    all.push_back(args(together));
  }
  adam(context, all);
  expect_same(each, together);

  each = set();
  together = set();
  std::vector<SgdArgs> sgds;
  for (std::size_t i = 0; i < count; ++i) {
    const auto args = [&](const Set& of) {
      return SgdArgs{.weight = part(of.weight, i),
                     .gradient = gradient(of, i),
                     .momentum_buffer = part(of.m1, i),
                     .model_weight = part(of.model, i),
                     .learning_rate = 0.01,
                     .momentum = 0.9,
                     .step = 2};
    };
    if (sizes[i] > 0) sgd(context, args(each));
    sgds.push_back(args(together));
  }
  sgd(context, sgds);
  expect_same(each, together);
}

TEST_P(OptimizerTest, RefusesMomentumWithoutABuffer) {
  const Tensor x = empty_f32({3});
  EXPECT_THROW(sgd(context, {.weight = x, .gradient = x, .momentum = 0.9}), Error);
  EXPECT_THROW(adam(context, {.weight = x, .gradient = x, .moment1 = x, .moment2 = empty_f32({4})}),
               Error);
}

TRIDENT_KERNEL_SUITE(OptimizerTest);

}  // namespace
}  // namespace trident
