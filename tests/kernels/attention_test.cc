#include "kernels/attention.h"

#include "kernels/rotary.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

class AttentionTest : public KernelTest {
 protected:
  struct Run {
    Tensor out, log_sum_exp, grad_qkv;
  };
  Run run(const reference::Attention& a, const Values& qkv, const Values& grad_out) {
    const AttentionShape& s = a.shape;
    const Tensor in = put(qkv, {s.batch * s.sequence, s.row()});
    const Shape out_shape{s.batch * s.sequence, s.heads * s.head_dim};
    Run r{empty(out_shape), empty_f32({s.batch, s.heads, s.sequence}), empty(in.shape())};
    DropoutArgs dropout;
    if (a.probability > 0) {
      dropout = {static_cast<float>(a.probability), a.key,
                 put_as(DType::i64, Values(a.samples.begin(), a.samples.end()), {s.batch})};
    }
    attention_forward(context, {.shape = s,
                                .qkv = in,
                                .out = r.out,
                                .log_sum_exp = r.log_sum_exp,
                                .dropout = dropout,
                                .head_offset = a.head_offset});
    attention_backward(context, {.shape = s,
                                 .qkv = in,
                                 .out = r.out,
                                 .log_sum_exp = r.log_sum_exp,
                                 .grad_out = put(grad_out, out_shape),
                                 .grad_qkv = r.grad_qkv,
                                 .dropout = dropout,
                                 .head_offset = a.head_offset});
    return r;
  }
  void check(const reference::Attention& a) {
    const AttentionShape& s = a.shape;
    const Values qkv = random(s.batch * s.sequence * s.row(), "qkv", 1.5);
    const Values grad = random(s.batch * s.sequence * s.heads * s.head_dim, "grad");
    Values log_sums;
    const Values out = a.forward(qkv, &log_sums);
    const Run r = run(a, qkv, grad);
    expect_near(r.out, out, "out");
    expect_near(r.log_sum_exp, log_sums, "log_sum_exp", 2e-6);
    // The kernel computes its delta from the rounded out.
    expect_near(r.grad_qkv, a.backward(qkv, grad), "grad_qkv", dtype == DType::f32 ? 1e-5 : 1e-2);
  }
};

TEST(AttentionReference, BackwardMatchesNumericDifferences) {
  for (const double probability : {0.0, 0.3}) {
    const reference::Attention a{{2, 5, 4, 2, 3}, probability, 77, {9, 4}, 1};
    Values qkv, grad;
    for (std::uint64_t i = 0; i < 2 * 5 * 8 * 3; ++i) qkv.push_back(random_normal(1, i));
    for (std::uint64_t i = 0; i < 2 * 5 * 4 * 3; ++i) grad.push_back(random_normal(2, i));
    const Values numeric =
        reference::numeric_gradient([&](const Values& v) { return a.forward(v); }, qkv, grad);
    EXPECT_LT(relative_error(a.backward(qkv, grad), numeric), 1e-8);
  }
}

TEST_P(AttentionTest, MatchesTheReferenceForOddSizes) {
  check({{1, 1, 1, 1, 1}});
  check({{2, 3, 3, 3, 6}});
  check({{2, 17, 4, 2, 12}});
  check({{1, 65, 2, 1, 8}});
  check({{3, 64, 2, 2, 32}});
  check({{1, 130, 3, 1, 20}});
  check({{1, 193, 1, 1, 64}});
  check({{1, 70, 2, 2, 128}});
  check({{1, 257, 1, 1, 16}});  // one more than forward's block of keys
  check({{1, 571, 2, 1, 12}});
  // Shapes as in training: heads of 64 and 128, several sequences and groups.
  check({{2, 256, 8, 2, 64}});
  check({{1, 200, 8, 2, 128}});
}

TEST_P(AttentionTest, DropoutDependsOnTheGlobalElement) {
  check({{2, 17, 4, 2, 12}, 0.25, 123, {1000000, 7}, 0});
  check({{1, 131, 2, 1, 16}, 0.5, 5, {std::int64_t{5} << 33}, 6});
  check({{1, 301, 2, 2, 8}, 0.25, 5, {7}, 1});
}

TEST_P(AttentionTest, ASampleDoesNotDependOnTheOthers) {
  const AttentionShape both{2, 67, 4, 2, 24}, one{1, 67, 4, 2, 24};
  const std::int64_t in = 67 * both.row(), out = 67 * both.heads * both.head_dim;
  const Values qkv = random(2 * in, "qkv"), grad = random(2 * out, "grad");
  const Run r = run({both}, qkv, grad);
  const Run alone =
      run({one}, Values(qkv.begin() + in, qkv.end()), Values(grad.begin() + out, grad.end()));
  const Values y = get(r.out), dx = get(r.grad_qkv);
  EXPECT_EQ(get(alone.out), Values(y.begin() + out, y.end()));
  EXPECT_EQ(get(alone.grad_qkv), Values(dx.begin() + in, dx.end()));
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionShape shape{1, 70, 1, 1, 16};
  Values qkv = random(70 * shape.row(), "qkv", 30);
  const reference::Attention a{shape};
  const Run r = run(a, qkv, random(70 * 16, "grad"));
  expect_near(r.out, a.forward(qkv), "out", dtype == DType::f32 ? 2e-4 : 1e-2);
}

TEST_P(AttentionTest, RotaryTurnsPairsAndBack) {
  for (const std::int64_t d : {2, 6, 32}) {
    const AttentionShape shape{2, 9, 4, 2, d};
    const Values x = random(2 * 9 * shape.row(), "x");
    Values want = x;
    for (std::int64_t t = 0; t < 18; ++t) {
      for (std::int64_t head = 0; head < shape.heads + shape.groups; ++head) {
        for (std::int64_t i = 0; i < d / 2; ++i) {
          const double angle = double(t % 9) * std::pow(500.0, -2.0 * double(i) / double(d));
          const std::int64_t at = t * shape.row() + head * d + i;
          const double a = reference::at(x, at), b = reference::at(x, at + d / 2);
          reference::at(want, at) = a * std::cos(angle) - b * std::sin(angle);
          reference::at(want, at + d / 2) = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    const Tensor qkv = put(x, {18, shape.row()});
    rotary(context, {.shape = shape, .qkv = qkv, .base = 500});
    expect_near(qkv, want, "rotated", dtype == DType::f32 ? 5e-7 : tolerance);
    rotary(context, {.shape = shape, .qkv = qkv, .base = 500, .inverse = true});
    expect_near(qkv, x, "turned back", dtype == DType::f32 ? 5e-7 : tolerance);
  }
}

// A text arrives in parts, of which the last ones are single positions.
TEST_P(AttentionTest, CachedPositionsSeeWhatTheWholeSees) {
  for (const AttentionShape& whole :
       {AttentionShape{2, 19, 4, 2, 12}, AttentionShape{1, 9, 1, 1, 1},
        AttentionShape{1, 300, 3, 3, 64}, AttentionShape{2, 140, 2, 1, 130}}) {
    const reference::Attention a{whole};
    const Values qkv = random(whole.batch * whole.sequence * whole.row(), "qkv", 1.5);
    const Values want = a.forward(qkv);
    const std::int64_t width = whole.heads * whole.head_dim, positions = whole.sequence + 3;
    const Tensor cache = empty({whole.batch, positions, 2 * whole.groups * whole.head_dim});
    for (std::int64_t begin = 0; begin < whole.sequence;) {
      AttentionShape part = whole;
      part.sequence = begin == 0 ? whole.sequence / 2 : begin + 3 < whole.sequence ? 2 : 1;
      const auto rows = [&](const Values& from, std::int64_t row) {
        Values some;
        for (std::int64_t sample = 0; sample < whole.batch; ++sample) {
          const auto at = from.begin() + (sample * whole.sequence + begin) * row;
          some.insert(some.end(), at, at + part.sequence * row);
        }
        return some;
      };
      const Tensor out = empty({part.batch * part.sequence, width});
      const CacheArgs args{
          .shape = part,
          .begin = begin,
          .qkv = put(rows(qkv, whole.row()), {part.batch * part.sequence, part.row()}),
          .cache = cache};
      append_to_cache(context, args);
      attention_cached(context, args, out);
      expect_near(out, rows(want, width), "out");
      begin += part.sequence;
    }
  }
}

TEST_P(AttentionTest, RotaryGoesOnAfterOtherPositions) {
  const AttentionShape whole{1, 9, 4, 2, 6};
  const Values x = random(9 * whole.row(), "x");
  const Tensor all = put(x, {9, whole.row()});
  rotary(context, {.shape = whole, .qkv = all, .base = 500});
  AttentionShape part = whole;
  part.sequence = 4;
  const auto from = x.begin() + 5 * whole.row();
  const Tensor some = put(Values(from, x.end()), {4, whole.row()});
  rotary(context, {.shape = part, .qkv = some, .base = 500, .begin = 5, .positions = 12});
  const Values want = get(all);
  EXPECT_EQ(get(some), Values(want.begin() + 5 * whole.row(), want.end()));
  EXPECT_THROW(rotary(context, {.shape = part, .qkv = some, .begin = 5, .positions = 8}), Error);
}

TEST_P(AttentionTest, RefusesHeadsThatGroupsDoNotDivide) {
  const AttentionShape shape{1, 4, 3, 2, 8};
  EXPECT_THROW(attention_forward(context, {.shape = shape,
                                           .qkv = empty({4, shape.row()}),
                                           .out = empty({4, 24}),
                                           .log_sum_exp = empty_f32({1, 3, 4})}),
               Error);
  const AttentionShape odd{1, 4, 2, 2, 5};
  EXPECT_THROW(rotary(context, {.shape = odd, .qkv = empty({4, odd.row()})}), Error);
}

TRIDENT_KERNEL_SUITE(AttentionTest);

}  // namespace
}  // namespace trident
