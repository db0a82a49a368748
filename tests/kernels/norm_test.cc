#include "kernels/norm.h"

#include <tuple>
#include <vector>

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

class NormTest : public KernelTest {
 protected:
  struct Case {
    std::int64_t rows, columns;
    bool layer;  // LayerNorm, else RMSNorm
  };
  static std::vector<Case> cases() {
    std::vector<Case> all;
    for (const bool layer : {true, false}) {
      for (const std::int64_t columns : {1, 3, 17, 65, 257})
        all.push_back({columns < 100 ? 19 : 5, columns, layer});
      all.push_back({1, 400, layer});
    }
    return all;
  }
  void make(const Case& c) {
    x = random(c.rows * c.columns, "x");
    for (double& v : x) v += 0.5;  // not centred
    if (dtype != DType::f32) {
      for (double& v : x) v = held(dtype, static_cast<float>(v));
    }
    weight = random(c.columns, "weight");
    bias = c.layer ? random(c.columns, "bias") : Values();
    grad_y = random(c.rows * c.columns, "grad_y");
    x_tensor = put(x, {c.rows, c.columns});
    weight_tensor = put(weight, {c.columns});
    bias_tensor = c.layer ? put(bias, {c.columns}) : Tensor();
    y = empty({c.rows, c.columns});
    mean = c.layer ? empty_f32({c.rows}) : Tensor();
    rstd = empty_f32({c.rows});
    norm_forward(context, {.x = x_tensor,
                           .weight = weight_tensor,
                           .bias = bias_tensor,
                           .y = y,
                           .mean = mean,
                           .rstd = rstd,
                           .epsilon = epsilon});
  }

  static constexpr float epsilon = 1e-3f;
  Values x, weight, bias, grad_y;
  Tensor x_tensor, weight_tensor, bias_tensor, y, mean, rstd;
};

TEST_P(NormTest, ForwardMatchesTheReference) {
  for (const Case& c : cases()) {
    make(c);
    expect_near(y, reference::norm(x, weight, bias, epsilon), "y");
  }
}

TEST_P(NormTest, GradientsMatchNumericDifferences) {
  for (const Case& c : cases()) {
    make(c);
    const Shape shape{c.rows, c.columns};
    const Values residual = random(c.rows * c.columns, "residual");
    Values want = reference::numeric_gradient(
        [&](const Values& v) { return reference::norm(v, weight, bias, epsilon); }, x, grad_y);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += residual[i];
    // The kernel runs in place over the residual's gradient.
    const Tensor grad_x = put(residual, shape);
    norm_backward_input(context, {.grad_y = put(grad_y, shape),
                                  .x = x_tensor,
                                  .weight = weight_tensor,
                                  .mean = mean,
                                  .rstd = rstd,
                                  .grad_x = grad_x,
                                  .residual_grad = grad_x});
    expect_near(grad_x, want, "grad_x", dtype == DType::f32 ? 5e-6 : tolerance);
    // The kernel runs in place over grad_y.
    const Tensor over = put(grad_y, shape);
    norm_backward_input(context, {.grad_y = over,
                                  .x = x_tensor,
                                  .weight = weight_tensor,
                                  .mean = mean,
                                  .rstd = rstd,
                                  .grad_x = over,
                                  .residual_grad = put(residual, shape)});
    EXPECT_EQ(get(over), get(grad_x));

    const Values before = random_of(DType::f32, c.columns, "before");
    Values weight_want = reference::numeric_gradient(
        [&](const Values& v) { return reference::norm(x, v, bias, epsilon); }, weight, grad_y);
    Values bias_want = before;
    for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
      reference::at(bias_want, i % c.columns) += reference::at(grad_y, i);
    }
    for (std::size_t i = 0; i < before.size(); ++i) weight_want[i] += before[i];
    const Tensor grad_weight = put_as(DType::f32, before, {c.columns});
    const Tensor grad_bias = c.layer ? put_as(DType::f32, before, {c.columns}) : Tensor();
    norm_backward_weight(context, {.grad_y = put(grad_y, shape),
                                   .x = x_tensor,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .grad_weight = grad_weight,
                                   .grad_bias = grad_bias});
    expect_near(grad_weight, weight_want, "grad_weight", 5e-6);
    if (c.layer) expect_near(grad_bias, bias_want, "grad_bias", 2e-6);
  }
}

struct Gradients {
  Values x, weight, bias;
};

// The formulas of a norm's backward, row by row.
Gradients norm_gradients(const Values& x, const Values& weight, const Values& grad_y,
                         std::int64_t columns, bool layer, double epsilon) {
  const auto n = static_cast<double>(columns);
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / columns;
  Gradients want{Values(x.size()), Values(weight.size()), Values(weight.size())};
  for (std::int64_t r = 0; r < rows; ++r) {
    double center = 0, squares = 0, ones = 0, along = 0;
    const auto each = [&](auto&& f) {
      for (std::int64_t c = 0; c < columns; ++c) f(c, r * columns + c);
    };
    each([&](std::int64_t, std::int64_t i) { center += reference::at(x, i) / n; });
    if (!layer) center = 0;
    each([&](std::int64_t, std::int64_t i) {
      squares += (reference::at(x, i) - center) * (reference::at(x, i) - center) / n;
    });
    const double scale = 1 / std::sqrt(squares + epsilon);
    const auto h = [&](std::int64_t i) { return (reference::at(x, i) - center) * scale; };
    const auto g = [&](std::int64_t c, std::int64_t i) {
      return reference::at(grad_y, i) * reference::at(weight, c);
    };
    each([&](std::int64_t c, std::int64_t i) {
      ones += layer ? g(c, i) / n : 0;
      along += g(c, i) * h(i) / n;
      reference::at(want.weight, c) += reference::at(grad_y, i) * h(i);
      reference::at(want.bias, c) += reference::at(grad_y, i);
    });
    each([&](std::int64_t c, std::int64_t i) {
      reference::at(want.x, i) = scale * (g(c, i) - ones - h(i) * along);
    });
  }
  return want;
}

// These are widths of real models, larger than numeric differences can check. A GPU has an
// algorithm for each.
TEST_P(NormTest, WideRowsMatchTheFormulas) {
  constexpr std::int64_t rows = 5;
  for (const bool layer : {true, false}) {
    for (const std::int64_t columns :
         {256, 700, 768, 1024, 1100, 1600, 2048, 2304, 3000, 4096, 6000, 8192, 9000}) {
      make({rows, columns, layer});
      expect_near(y, reference::norm(x, weight, bias, epsilon), "y");
      const Shape shape{rows, columns};
      const Gradients want =
          norm_gradients(x, weight, grad_y, columns, layer, static_cast<double>(epsilon));
      const Tensor grad_x = empty(shape);
      norm_backward_input(context, {.grad_y = put(grad_y, shape),
                                    .x = x_tensor,
                                    .weight = weight_tensor,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .grad_x = grad_x});
      expect_near(grad_x, want.x, "grad_x", dtype == DType::f32 ? 2e-6 : tolerance);
      // The kernels run in place over a residual's gradient, and over grad_y.
      const Values residual = random(rows * columns, "residual");
      Values sum = want.x;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
      for (const bool over_residual : {true, false}) {
        const Tensor over = put(over_residual ? residual : grad_y, shape);
        norm_backward_input(context,
                            {.grad_y = over_residual ? put(grad_y, shape) : over,
                             .x = x_tensor,
                             .weight = weight_tensor,
                             .mean = mean,
                             .rstd = rstd,
                             .grad_x = over,
                             .residual_grad = over_residual ? over : put(residual, shape)});
        expect_near(over, sum, "grad_x in place", dtype == DType::f32 ? 2e-6 : tolerance);
      }
      const Values zeros(weight.size(), 0.0);
      const Tensor grad_weight = put_as(DType::f32, zeros, {columns});
      const Tensor grad_bias = layer ? put_as(DType::f32, zeros, {columns}) : Tensor();
      norm_backward_weight(context, {.grad_y = put(grad_y, shape),
                                     .x = x_tensor,
                                     .mean = mean,
                                     .rstd = rstd,
                                     .grad_weight = grad_weight,
                                     .grad_bias = grad_bias});
      expect_near(grad_weight, want.weight, "grad_weight", 5e-6);
      if (layer) expect_near(grad_bias, want.bias, "grad_bias", 2e-6);
    }
  }
}

TEST_P(NormTest, ARowDoesNotDependOnTheOthers) {
  make({19, 257, true});
  const Values all = get(y);
  const Tensor alone = empty({1, 257});
  norm_forward(context, {.x = x_tensor.rows(11, 1),
                         .weight = weight_tensor,
                         .bias = bias_tensor,
                         .y = alone,
                         .mean = mean.rows(0, 1),
                         .rstd = rstd.rows(0, 1),
                         .epsilon = epsilon});
  EXPECT_EQ(get(alone), Values(all.begin() + 11 * 257, all.begin() + 12 * 257));
}

TEST_P(NormTest, RefusesABiasWithoutAMean) {
  EXPECT_THROW(norm_forward(context, {.x = empty({2, 3}),
                                      .weight = empty({3}),
                                      .bias = empty({3}),
                                      .y = empty({2, 3}),
                                      .rstd = empty_f32({2})}),
               Error);
  EXPECT_THROW(
      norm_forward(
          context,
          {.x = empty({2, 3}), .weight = empty({2}), .y = empty({2, 3}), .rstd = empty_f32({2})}),
      Error);
}

// Heads between other columns of a row, normed into and from tensors of other widths.
TEST_P(NormTest, HeadsAreNormedEachByTheSameWeight) {
  struct Heads {
    std::int64_t rows, heads, dim;
  };
  for (const auto& [rows, heads, dim] :
       {Heads{1, 1, 1}, {7, 3, 6}, {3, 2, 64}, {1, 2, 130}, {4, 4, 24}}) {
    const std::int64_t n = heads * dim, t = rows;
    Values of_x = random(t * n, "x");
    if (dtype != DType::f32) {
      for (double& v : of_x) v = held(dtype, static_cast<float>(v));
    }
    const Values of_weight = random(dim, "weight"), grad_of_y = random(t * n, "grad_y");
    const Values begun = random(dim, "begun");
    // (T, heads · D) and (T · heads, D) have the same elements.
    const auto norm = [&](const Values& v) { return reference::norm(v, of_weight, {}, 1e-5); };
    const auto among = [&](const Values& v, std::int64_t before, std::int64_t after) {
      Values wide;
      for (std::int64_t r = 0; r < t; ++r) {
        wide.insert(wide.end(), static_cast<std::size_t>(before), 100.0);
        wide.insert(wide.end(), v.begin() + r * n, v.begin() + (r + 1) * n);
        wide.insert(wide.end(), static_cast<std::size_t>(after), 100.0);
      }
      return HeadColumns{put(wide, {t, before + n + after}), before};
    };
    const auto taken = [&](const HeadColumns& from) {
      const Values all = get(from.rows);
      Values some;
      for (std::int64_t r = 0; r < t; ++r) {
        const auto at = all.begin() + r * from.rows.dim(1) + from.begin;
        some.insert(some.end(), at, at + n);
      }
      return some;
    };
    const HeadColumns in = among(of_x, 3, 2), out = among(of_x, 8, 0);
    const HeadColumns grad = among(grad_of_y, 0, 5), grad_in = among(of_x, 1, 1);
    const Tensor w = put(of_weight, {dim}), rstd_of = empty_f32({heads, t});
    head_norm_forward(context, {.heads = heads, .x = in, .y = out, .weight = w, .rstd = rstd_of});
    EXPECT_LT(relative_error(taken(out), norm(of_x)), tolerance);
    head_norm_backward_input(
        context,
        {.heads = heads, .grad_y = grad, .x = in, .weight = w, .rstd = rstd_of, .grad_x = grad_in});
    const double near = dtype == DType::f32 ? 2e-5 : tolerance;
    if (dim > 1) {  // else the gradient is epsilon's only
      EXPECT_LT(relative_error(taken(grad_in), reference::numeric_gradient(norm, of_x, grad_of_y)),
                near);
    }
    const auto by_weight = [&](const Values& v) { return reference::norm(of_x, v, {}, 1e-5); };
    Values want = reference::numeric_gradient(by_weight, of_weight, grad_of_y);
    const Tensor grad_weight = put_as(DType::f32, begun, {dim});
    head_norm_backward_weight(
        context,
        {.heads = heads, .grad_y = grad, .x = in, .rstd = rstd_of, .grad_weight = grad_weight});
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += begun[i];
    expect_near(grad_weight, want, "grad_weight", near);
    // The other columns of a row stay.
    EXPECT_EQ(get(out.rows)[0], 100.0);
    EXPECT_EQ(get(grad_in.rows)[0], 100.0);
  }
}

// Columns that two ranks hold give the norm of the full rows.
TEST_P(NormTest, RowsOverSeveralRanksAreNormedByTheSquaresOfAll) {
  for (const auto& [rows, first, second] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 2, 1}, {5, 48, 19}, {3, 130, 6}}) {
    const std::int64_t all = first + second;
    const Values of_x = random(rows * all, "x"), of_weight = random(all, "weight");
    const Values grad_of_y = random(rows * all, "grad_y");
    const auto norm = [&](const Values& v) { return reference::norm(v, of_weight, {}, 1e-5); };
    const HeadColumns x{put(of_x, {rows, all})}, grad_y{put(grad_of_y, {rows, all})};
    const HeadColumns y{empty({rows, all})}, grad_x{empty({rows, all})};
    struct Part {
      std::int64_t begin, count;
      HeadColumns of(const HeadColumns& full) const { return {full.rows, begin}; }
    };
    const std::vector<Part> parts{{0, first}, {first, second}};
    const auto weight_of = [&](const Part& part) {
      const auto at = of_weight.begin() + part.begin;
      return put(Values(at, at + part.count), {part.count});
    };
    // Adds up the values that each part's `dots` fills in.
    const auto sum = [&](const auto& dots_of) {
      Values total(static_cast<std::size_t>(rows), 0.0);
      for (const Part& part : parts) {
        const Tensor dots = empty_f32({rows});
        dots_of(part, dots);
        const Values own = get(dots);
        for (std::size_t t = 0; t < total.size(); ++t) total[t] += own[t];
      }
      return put_as(DType::f32, total, {rows});
    };
    const Tensor squares = sum([&](const Part& part, const Tensor& dots) {
      row_dots(
          context,
          {.x = part.of(x), .y = part.of(x), .weight = {}, .columns = part.count, .dots = dots});
    });
    const Tensor dots = sum([&](const Part& part, const Tensor& own) {
      row_dots(context, {.x = part.of(x),
                         .y = part.of(grad_y),
                         .weight = weight_of(part),
                         .columns = part.count,
                         .dots = own});
    });
    for (const Part& part : parts) {
      const Tensor weight = weight_of(part), rstd_of = empty_f32({1, rows});
      row_norm_forward(context, {.x = part.of(x),
                                 .y = part.of(y),
                                 .weight = weight,
                                 .squares = squares,
                                 .all_columns = all,
                                 .rstd = rstd_of});
      row_norm_backward_input(context, {.grad_y = part.of(grad_y),
                                        .x = part.of(x),
                                        .weight = weight,
                                        .rstd = rstd_of,
                                        .dots = dots,
                                        .all_columns = all,
                                        .grad_x = part.of(grad_x)});
    }
    expect_near(y.rows, norm(of_x), "y");
    expect_near(grad_x.rows, reference::numeric_gradient(norm, of_x, grad_of_y), "grad_x",
                dtype == DType::f32 ? 2e-5 : tolerance);
  }
}

TRIDENT_KERNEL_SUITE(NormTest);

}  // namespace
}  // namespace trident
