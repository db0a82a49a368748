#include "kernels/attention.h"

#include "kernels/elementwise.h"
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
  DropoutArgs dropout_of(const reference::Attention& a) {
    if (a.probability == 0) return {};
    return {static_cast<float>(a.probability), a.key,
            put_as(DType::i64, Values(a.samples.begin(), a.samples.end()), {a.shape.batch})};
  }
  Run run(const reference::Attention& a, const Values& qkv, const Values& grad_out) {
    return run(context, a, qkv, grad_out);
  }
  // As above, with the threads of another context of this device.
  Run run(Context& runner, const reference::Attention& a, const Values& qkv,
          const Values& grad_out) {
    const AttentionShape& s = a.shape;
    const Tensor in = put(qkv, {s.batch * s.sequence, s.row()});
    const Shape out_shape{s.batch * s.sequence, s.out_row()};
    Run r{empty(out_shape), empty_f32({s.batch, s.heads, s.sequence}), empty(in.shape())};
    const AttentionArgs forward{.shape = s,
                                .in = split_qkv(s, in),
                                .out = r.out,
                                .log_sum_exp = r.log_sum_exp,
                                .mask = {.window = a.window},
                                .dropout = dropout_of(a),
                                .head_offset = a.head_offset};
    const Tensor grad = put(grad_out, out_shape);
    context.synchronize();
    attention_forward(runner, forward);
    attention_backward(runner,
                       {.forward = forward, .grad_out = grad, .grad = split_qkv(s, r.grad_qkv)});
    runner.synchronize();
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

  // Elements of some rows and columns of a matrix with `row` columns.
  static Values part(const Values& from, std::int64_t row, std::int64_t samples,
                     std::int64_t positions, std::int64_t first, std::int64_t count,
                     std::int64_t column, std::int64_t columns) {
    Values some;
    for (std::int64_t b = 0; b < samples; ++b) {
      for (std::int64_t t = first; t < first + count; ++t) {
        const auto at = from.begin() + (b * positions + t) * row + column;
        some.insert(some.end(), at, at + columns);
      }
    }
    return some;
  }
  // A tensor whose rows hold `values` of `columns` each between foreign elements.
  HeadColumns apart(const Values& values, std::int64_t columns) {
    constexpr std::int64_t before = 3, after = 2;
    const auto rows = static_cast<std::int64_t>(values.size()) / columns;
    Values wide;
    for (std::int64_t t = 0; t < rows; ++t) {
      wide.insert(wide.end(), before, 1e3);
      wide.insert(wide.end(), values.begin() + t * columns, values.begin() + (t + 1) * columns);
      wide.insert(wide.end(), after, 1e3);
    }
    return {put(wide, {rows, before + columns + after}), before};
  }
  Values apart(const HeadColumns& x, std::int64_t columns) {
    return part(get(x.rows), x.rows.dim(1), 1, x.rows.dim(0), 0, x.rows.dim(0), x.begin, columns);
  }

  // Runs the queries of `a` against keys [key_begin, key_begin + count) of its positions, each
  // operand in a tensor of its own, and compares with the reference.
  struct Parts {
    Values out, log_sum_exp;
  };
  void check_parts(const reference::Attention& a) { check_parts(context, a); }
  // With the threads of another context of this device.
  void check_parts(Context& runner, const reference::Attention& a) {
    const AttentionShape& s = a.shape;
    const std::int64_t d = s.head_dim, e = s.value_dim(), k = s.keys();
    const Values qkv = random(s.batch * k * s.row(), "qkv", 1.5);
    const Values grad = random(s.batch * s.sequence * s.out_row(), "grad");
    const auto columns = [&](std::int64_t first, std::int64_t count, std::int64_t column,
                             std::int64_t n, const Values& from) {
      return part(from, s.row(), s.batch, k, first, count, column, n);
    };
    const std::int64_t q_columns = s.heads * d, k_columns = s.groups * d, v_columns = s.groups * e;
    AttentionArgs forward{
        .shape = s,
        .in = {apart(columns(a.query_begin, s.sequence, 0, q_columns, qkv), q_columns),
               apart(columns(0, k, q_columns, k_columns, qkv), k_columns),
               apart(columns(0, k, q_columns + k_columns, v_columns, qkv), v_columns)},
        .out = empty({s.batch * s.sequence, s.out_row()}),
        .log_sum_exp = empty_f32({s.batch, s.heads, s.sequence}),
        // Only differences of positions matter.
        .mask = {.query_begin = a.query_begin + 7, .key_begin = 7, .window = a.window},
        .dropout = dropout_of(a),
        .head_offset = a.head_offset};
    if (a.probability > 0) forward.mask.query_begin -= 7, forward.mask.key_begin -= 7;
    Values begins;
    for (std::int64_t b = 0; b < s.batch && !a.document_begins.empty(); ++b) {
      for (std::int64_t t = a.query_begin; t < a.query_begin + s.sequence; ++t) {
        begins.push_back(double(a.document_begins[static_cast<std::size_t>(b * k + t)] +
                                forward.mask.key_begin));
      }
    }
    if (!begins.empty()) {
      forward.mask.document_begins = put_as(DType::i64, begins, {s.batch, s.sequence});
    }
    if (!a.sinks.empty()) forward.sinks = put(a.sinks, {s.heads});
    context.synchronize();
    attention_forward(runner, forward);
    runner.synchronize();
    Values log_sums, sinks;
    expect_near(forward.out, a.forward(qkv, &log_sums), "out");
    expect_near(forward.log_sum_exp, log_sums, "log_sum_exp", 2e-6);

    const auto like = [&](const HeadColumns& x) {
      return HeadColumns{empty(x.rows.shape()), x.begin};
    };
    const QueryKeyValue got{like(forward.in.query), like(forward.in.key), like(forward.in.value)};
    const Values before = random(s.heads, "sink gradients");
    const Tensor grad_sinks = a.sinks.empty() ? Tensor() : put_as(DType::f32, before, {s.heads});
    const Tensor grad_out = put(grad, forward.out.shape());
    context.synchronize();
    attention_backward(
        runner, {.forward = forward, .grad_out = grad_out, .grad = got, .grad_sinks = grad_sinks});
    runner.synchronize();
    const Values want = a.backward(qkv, grad, a.sinks.empty() ? nullptr : &sinks);
    const double near = dtype == DType::f32 ? 1e-5 : 1e-2;
    const auto expect = [&](const HeadColumns& x, const Values& wanted, const char* name,
                            std::int64_t n) {
      const Values is = apart(x, n);
      double largest = 0;
      for (const double value : wanted) largest = std::max(largest, std::abs(value));
      if (largest < 1e-9) {  // one key each: its probability is 1 whatever the score
        for (const double value : is) ASSERT_NEAR(value, 0, 1e2 * near) << name;
      } else {
        EXPECT_LT(relative_error(is, wanted), near) << name;
      }
    };
    expect(got.query, columns(a.query_begin, s.sequence, 0, q_columns, want), "grad q", q_columns);
    expect(got.key, columns(0, k, q_columns, k_columns, want), "grad k", k_columns);
    expect(got.value, columns(0, k, q_columns + k_columns, v_columns, want), "grad v", v_columns);
    if (a.sinks.empty()) return;
    for (std::size_t i = 0; i < sinks.size(); ++i) sinks[i] += before[i];
    expect_near(grad_sinks, sinks, "grad sinks", near);
  }
  // Document borders for (B, K): documents of about `length`.
  std::vector<std::int64_t> documents(std::int64_t batch, std::int64_t keys, std::int64_t length) {
    std::vector<std::int64_t> begins;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0, begin = 0; t < keys; ++t) {
        if ((t + 5 * b) % length == 0) begin = t;
        begins.push_back(begin);
      }
    }
    return begins;
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

TEST(AttentionReference, BackwardOfMaskedPartsMatchesNumericDifferences) {
  const reference::Attention a{.shape = {2, 3, 4, 2, 3, 7, 2},
                               .query_begin = 4,
                               .window = 3,
                               .document_begins = {0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0, 0, 5, 5},
                               .sinks = {0.5, -1, 2, 0}};
  Values qkv, grad;
  for (std::uint64_t i = 0; i < 2 * 7 * static_cast<std::uint64_t>(a.shape.row()); ++i) {
    qkv.push_back(random_normal(1, i));
  }
  for (std::uint64_t i = 0; i < 2 * 3 * 4 * 2; ++i) grad.push_back(random_normal(2, i));
  Values sinks;
  const Values got = a.backward(qkv, grad, &sinks);
  const auto of_qkv = [&](const Values& v) { return a.forward(v); };
  EXPECT_LT(relative_error(got, reference::numeric_gradient(of_qkv, qkv, grad)), 1e-8);
  const auto of_sinks = [&](const Values& v) {
    reference::Attention other = a;
    other.sinks = v;
    return other.forward(qkv);
  };
  EXPECT_LT(relative_error(sinks, reference::numeric_gradient(of_sinks, a.sinks, grad)), 1e-8);
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

// Where bf16 products of tiles are usual, these are the other ones.
TEST_P(AttentionTest, WidenedProductsMatchTheReference) {
  Context widening(*device, 2, {.deterministic = GetParam().deterministic, .widen_bf16 = true});
  if (GetParam().device != On::cuda) cpu::use_isa(widening, GetParam().isa);
  check_parts(widening, {.shape = {2, 130, 4, 2, 20}});
  check_parts(widening, {.shape = {1, 321, 2, 1, 64}, .window = 100});
}

// Threads that don't divide the heads share some of them.
TEST_P(AttentionTest, AnyNumberOfThreadsSharesTheWork) {
  for (const reference::Attention& a : std::vector<reference::Attention>{
           {.shape = {1, 300, 1, 1, 12}},
           {.shape = {1, 270, 3, 3, 8}},
           {.shape = {1, 200, 6, 2, 8}},
           {.shape = {3, 150, 5, 1, 20}},
           {.shape = {1, 300, 3, 1, 8}, .window = 100},
           {.shape = {1, 200, 3, 1, 12}, .probability = 0.4, .key = 7, .samples = {5}}}) {
    check(a);
    // Parts don't depend on the type.
    if (GetParam().device != On::cpu || dtype != DType::f32) continue;
    const AttentionShape& s = a.shape;
    const Values qkv = random(s.batch * s.sequence * s.row(), "qkv", 1.5);
    const Values grad = random(s.batch * s.sequence * s.out_row(), "grad");
    const Values want = a.backward(qkv, grad);
    const Run two = run(a, qkv, grad);
    for (const int threads : {1, 3, 4, 7, 16}) {
      Context other(*device, threads);
      cpu::use_isa(other, GetParam().isa);
      const Run r = run(other, a, qkv, grad);
      EXPECT_EQ(get(run(other, a, qkv, grad).grad_qkv), get(r.grad_qkv)) << threads;
      EXPECT_EQ(get(r.out), get(two.out)) << threads;  // a query isn't shared
      EXPECT_EQ(get(r.log_sum_exp), get(two.log_sum_exp)) << threads;
      expect_near(r.grad_qkv, want, "grad_qkv", dtype == DType::f32 ? 1e-5 : 1e-2);
    }
  }
  // Sinks, documents, offsets and sizes of value heads, with parts in the middle of a task.
  std::vector<std::int64_t> begins(300);
  for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i < 130 ? 0 : 130;
  const std::vector<reference::Attention> masked{
      {.shape = {1, 280, 3, 1, 8, 0, 12}, .sinks = {1, -2, 0.5}},
      {.shape = {1, 260, 2, 2, 12, 0, 4}, .sinks = {1, -2}},
      {.shape = {1, 200, 3, 1, 8, 300}, .query_begin = 100, .window = 70},
      {.shape = {1, 300, 3, 3, 8}, .document_begins = begins}};
  for (const reference::Attention& a : masked) check_parts(a);
  if (GetParam().device != On::cpu || dtype != DType::f32) return;
  for (const int threads : {3, 7, 16}) {
    Context other(*device, threads);
    cpu::use_isa(other, GetParam().isa);
    for (const reference::Attention& a : masked) check_parts(other, a);
  }
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

TEST_P(AttentionTest, AWindowHidesOlderKeys) {
  for (const std::int64_t window : {1, 16, 63, 65, 149, 1000}) {
    SCOPED_TRACE(window);
    check_parts({.shape = {1, 150, 2, 1, 12}, .window = window});
  }
  check_parts({.shape = {1, 400, 1, 1, 6}, .window = 256});
  check_parts({.shape = {2, 100, 4, 2, 16},
               .probability = 0.25,
               .key = 3,
               .samples = {4, 1},
               .head_offset = 1,
               .window = 50});
}

TEST_P(AttentionTest, ADocumentHidesThoseBefore) {
  for (const std::int64_t length : {1, 3, 64, 151}) {
    SCOPED_TRACE(length);
    check_parts({.shape = {2, 150, 2, 1, 6}, .document_begins = documents(2, 150, length)});
  }
  check_parts({.shape = {2, 150, 2, 2, 8},
               .probability = 0.5,
               .key = 3,
               .samples = {4, 1},
               .window = 40,
               .document_begins = documents(2, 150, 97)});
}

// Queries at the end of the keys, as in a part of the sequence on each rank.
TEST_P(AttentionTest, QueriesMayBeginAfterTheKeys) {
  for (const std::int64_t begin : {1, 37, 64, 129}) {
    SCOPED_TRACE(begin);
    check_parts({.shape = {2, 151 - begin, 2, 1, 6, 151}, .query_begin = begin});
    check_parts({.shape = {1, 151 - begin, 2, 2, 12, 151},
                 .probability = 0.25,
                 .key = 3,
                 .samples = {4},
                 .query_begin = begin,
                 .window = 70,
                 .document_begins = documents(1, 151, 120)});
  }
}

// No query sees these keys, whose gradients are zeros.
TEST_P(AttentionTest, KeysMayComeAfterAllQueries) {
  check_parts({.shape = {1, 20, 2, 1, 12, 64}});
  check_parts({.shape = {1, 1, 2, 2, 12, 64}});
  check_parts({.shape = {2, 100, 2, 1, 6, 190}});
}

TEST_P(AttentionTest, ValueHeadsMayHaveASizeOfTheirOwn) {
  check_parts({.shape = {2, 70, 4, 2, 24, 0, 9}});
  check_parts({.shape = {1, 130, 2, 2, 8, 0, 40}});
  check_parts({.shape = {1, 65, 2, 1, 96, 0, 64}, .window = 20});
}

TEST_P(AttentionTest, SinksTakeAPartOfEachQuery) {
  check_parts({.shape = {2, 70, 4, 2, 12}, .sinks = {0.5, -3, 4, 0}});
  check_parts({.shape = {2, 200, 2, 1, 12}, .window = 33, .sinks = {30, -40}});
  check_parts({.shape = {1, 90, 2, 1, 12},
               .probability = 0.25,
               .key = 3,
               .samples = {4},
               .document_begins = documents(1, 90, 13),
               .sinks = {1, 2}});
}

// Parts of the keys, merged by their log-sum-exp, are the complete attention. Some queries see none
// of a part.
TEST_P(AttentionTest, PartsOfTheKeysCanBeMerged) {
  const AttentionShape s{1, 150, 4, 2, 12};
  const Values qkv = random(150 * s.row(), "qkv", 1.5);
  Values log_sums;
  const Values want = reference::Attention{s}.forward(qkv, &log_sums);
  Values total(want.size(), 0.0);
  std::vector<Values> outs, sums;
  std::vector<AttentionArgs> parts;
  for (const auto& [begin, count] : {std::pair{0, 41}, std::pair{41, 64}, std::pair{105, 45}}) {
    const Tensor rows = put(qkv, {150, s.row()});
    const Values some = part(qkv, s.row(), 1, 150, begin, count, 0, s.row());
    const Tensor keys = put(some, {count, s.row()});
    AttentionShape of_part = s;
    of_part.key_positions = count;
    AttentionArgs args;
    args.shape = of_part;
    args.in.query.rows = rows;
    args.in.key = split_qkv(s, keys).key;
    args.in.value = split_qkv(s, keys).value;
    args.out = empty({150, s.out_row()});
    args.log_sum_exp = empty_f32({1, 4, 150});
    args.mask.key_begin = begin;
    attention_forward(context, args);
    outs.push_back(get(args.out));
    sums.push_back(get(args.log_sum_exp));
    parts.push_back(args);
  }
  for (std::size_t i = 0; i < total.size(); ++i) {
    const std::size_t t = i / 48, head = i % 48 / 12, at = head * 150 + t;
    for (std::size_t p = 0; p < outs.size(); ++p) {
      EXPECT_TRUE(sums[p][at] > -INFINITY || outs[p][i] == 0.0);
      total[i] += outs[p][i] * std::exp(sums[p][at] - log_sums[at]);
    }
  }
  EXPECT_LT(relative_error(total, want), dtype == DType::f32 ? 1e-6 : 1e-2);
  EXPECT_EQ(sums[1][40], -INFINITY);  // query 40 comes before the second part

  // Merged by the kernel. The queries before 41 see nothing of the first two parts here.
  const Tensor merged = empty_f32({150, s.out_row()}), merged_sums = empty_f32({1, 4, 150});
  copy(context, parts[1].out, merged);
  copy(context, parts[1].log_sum_exp, merged_sums);
  for (const std::size_t i : {2, 0}) {
    merge_attention(context, {.shape = s,
                              .part = parts[i].out,
                              .part_log_sum_exp = parts[i].log_sum_exp,
                              .out = merged,
                              .log_sum_exp = merged_sums});
    if (i != 2) continue;
    EXPECT_EQ(get(merged_sums)[40], -INFINITY);
    EXPECT_EQ(get(merged)[40 * 48], 0.0);
  }
  EXPECT_LT(relative_error(get(merged), want), dtype == DType::f32 ? 1e-6 : 1e-2);
  EXPECT_LT(relative_error(get(merged_sums), log_sums), 2e-6);
}

TEST_P(AttentionTest, GradientsOfPartsOfTheKeysAddUp) {
  const AttentionShape s{1, 150, 4, 2, 12};
  const reference::Attention a{s};
  const Values qkv = random(150 * s.row(), "qkv", 1.5), grad = random(150 * s.out_row(), "grad");
  const Run full = run(a, qkv, grad);
  Values total(static_cast<std::size_t>(150 * s.row()), 0.0);
  for (const auto& [begin, count] : {std::pair{0, 41}, std::pair{41, 64}, std::pair{105, 45}}) {
    const Values some = part(qkv, s.row(), 1, 150, begin, count, 0, s.row());
    AttentionShape of_part = s;
    of_part.key_positions = count;
    const QueryKeyValue keys = split_qkv(s, put(some, {count, s.row()}));
    const QueryKeyValue grads = split_qkv(s, empty({count, s.row()}));
    const Tensor grad_query = empty({150, s.row()});
    AttentionBackwardArgs args;
    args.forward.shape = of_part;
    args.forward.in = keys;
    args.forward.in.query = {put(qkv, {150, s.row()}), 0};
    args.forward.out = full.out;
    args.forward.log_sum_exp = full.log_sum_exp;
    args.forward.mask.key_begin = begin;
    args.grad_out = put(grad, full.out.shape());
    args.grad = grads;
    args.grad.query = {grad_query, 0};
    attention_backward(context, args);
    const Values of_queries = get(grad_query), of_keys = get(grads.key.rows);
    for (std::int64_t t = 0; t < 150; ++t) {
      for (std::int64_t c = 0; c < s.row(); ++c) {
        const bool query = c < s.heads * s.head_dim;
        const std::int64_t row = query ? t : t - begin;
        if (!query && (row < 0 || row >= count)) continue;
        total[static_cast<std::size_t>(t * s.row() + c)] +=
            (query ? of_queries : of_keys)[static_cast<std::size_t>(row * s.row() + c)];
      }
    }
  }
  EXPECT_LT(relative_error(total, a.backward(qkv, grad)), dtype == DType::f32 ? 1e-5 : 1e-2);
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
    RotaryArgs args = rotary_of(shape, qkv);
    args.frequencies.base = 500;
    rotary(context, args);
    expect_near(qkv, want, "rotated", dtype == DType::f32 ? 5e-7 : tolerance);
    args.inverse = true;
    rotary(context, args);
    expect_near(qkv, x, "turned back", dtype == DType::f32 ? 5e-7 : tolerance);
  }
}

// A text arrives in parts, of which the last ones are single positions.
TEST_P(AttentionTest, CachedPositionsGiveTheResultOfTheFullSequence) {
  for (const reference::Attention& a : std::vector<reference::Attention>{
           {.shape = {2, 19, 4, 2, 12}},
           {.shape = {1, 9, 1, 1, 1}},
           {.shape = {1, 300, 3, 3, 64}},
           {.shape = {2, 140, 2, 1, 130}},
           {.shape = {2, 60, 4, 2, 12, 0, 7}, .window = 9},
           {.shape = {1, 30, 2, 1, 8}, .window = 5, .sinks = {1, -2}}}) {
    const AttentionShape& full = a.shape;
    const Values qkv = random(full.batch * full.sequence * full.row(), "qkv", 1.5);
    const Values want = a.forward(qkv);
    const std::int64_t positions = full.sequence + 3;
    const Tensor cache =
        empty({full.batch, positions, full.groups * (full.head_dim + full.value_dim())});
    for (std::int64_t begin = 0; begin < full.sequence;) {
      AttentionShape step = full;
      step.sequence = begin == 0 ? full.sequence / 2 : begin + 3 < full.sequence ? 2 : 1;
      const auto rows = [&](const Values& from, std::int64_t row) {
        return part(from, row, full.batch, full.sequence, begin, step.sequence, 0, row);
      };
      const Tensor out = empty({step.batch * step.sequence, step.out_row()});
      const CacheArgs args{.shape = step,
                           .begin = begin,
                           .in = split_qkv(step, put(rows(qkv, full.row()),
                                                     {step.batch * step.sequence, step.row()})),
                           .cache = cache,
                           .window = a.window,
                           .sinks = a.sinks.empty() ? Tensor() : put(a.sinks, {full.heads})};
      append_to_cache(context, args);
      attention_cached(context, args, out);
      expect_near(out, rows(want, full.out_row()), "out");
      begin += step.sequence;
    }
  }
}

// The rotary parts of latent attention: neighbours turn, in heads that lie apart.
TEST_P(AttentionTest, RotaryTurnsNeighboursOfPartsOfHeads) {
  constexpr std::int64_t batch = 2, sequence = 5, heads = 3, dim = 8, stride = 13, begin = 4;
  constexpr std::int64_t columns = begin + heads * stride;
  const Values before = random(batch * sequence * columns, "x");
  for (const bool apart : {true, false}) {
    const Tensor x = put(before, {batch * sequence, columns});
    RotaryArgs args{.batch = batch,
                    .sequence = sequence,
                    .heads = heads,
                    .head_dim = dim,
                    .x = {x, begin},
                    .stride = apart ? stride : 0,
                    .interleaved = true,
                    .frequencies = {.base = 100, .amplitude = 1.5f}};
    rotary(context, args);
    Values want = before;
    for (std::int64_t t = 0; t < batch * sequence; ++t) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          const double angle = static_cast<double>(t % sequence) * args.frequencies.of(i, dim);
          const std::int64_t at = t * columns + begin + head * (apart ? stride : dim) + 2 * i;
          const double a = reference::at(before, at), b = reference::at(before, at + 1);
          reference::at(want, at) = 1.5 * (a * std::cos(angle) - b * std::sin(angle));
          reference::at(want, at + 1) = 1.5 * (b * std::cos(angle) + a * std::sin(angle));
        }
      }
    }
    expect_near(x, want, "turned", dtype == DType::f32 ? 1e-6 : tolerance);
    args.inverse = true;
    args.frequencies.amplitude = 1 / 1.5f;
    rotary(context, args);
    expect_near(x, before, "turned back", dtype == DType::f32 ? 1e-6 : tolerance);
  }
}

TEST_P(AttentionTest, RotaryTakesAPositionForEachRow) {
  constexpr std::int64_t rows = 12, positions = 9;
  const Values own{0, 1, 2, 3, 0, 1, 0, 0, 1, 8, 5, 2};
  for (const std::int64_t d : {6, 32}) {
    const AttentionShape shape{2, rows / 2, 4, 2, d};
    const Values before = random(rows * shape.row(), "x");
    for (const bool interleaved : {false, true}) {
      const Tensor together = put(before, {rows, shape.row()});
      RotaryArgs args = rotary_of(shape, together);
      args.positions = positions;
      args.interleaved = interleaved;
      args.row_positions = put_as(DType::i32, own, {rows});
      rotary(context, args);
      const Values got = get(together);
      const Tensor one_by_one = put(before, {rows, shape.row()});
      for (std::int64_t row = 0; row < rows; ++row) {
        args.batch = args.sequence = 1;
        args.x = {one_by_one.rows(row, 1), 0};
        args.row_positions = Tensor();
        args.begin = static_cast<std::int64_t>(reference::at(own, row));
        rotary(context, args);
      }
      EXPECT_EQ(got, get(one_by_one)) << d;
      EXPECT_NE(got, before);
    }
  }
}

TEST_P(AttentionTest, RotaryContinuesAfterOtherPositions) {
  const AttentionShape full{1, 9, 4, 2, 6};
  const Values x = random(9 * full.row(), "x");
  const Tensor all = put(x, {9, full.row()});
  RotaryArgs args = rotary_of(full, all);
  args.frequencies.base = 500;
  rotary(context, args);
  AttentionShape part = full;
  part.sequence = 4;
  const auto from = x.begin() + 5 * full.row();
  const Tensor some = put(Values(from, x.end()), {4, full.row()});
  RotaryArgs later = rotary_of(part, some);
  later.frequencies.base = 500;
  later.begin = 5;
  later.positions = 12;
  rotary(context, later);
  const Values want = get(all);
  EXPECT_EQ(get(some), Values(want.begin() + 5 * full.row(), want.end()));
  later.positions = 8;
  EXPECT_THROW(rotary(context, later), Error);
}

TEST_P(AttentionTest, RefusesACacheThatLacksPositions) {
  const AttentionShape shape{1, 1, 2, 2, 8};
  CacheArgs args{.shape = shape,
                 .begin = 9,
                 .cache_begin = 6,
                 .in = split_qkv(shape, empty({1, shape.row()})),
                 .cache = empty({1, 8, 32}),
                 .window = 4};
  attention_cached(context, args, empty({1, 16}));
  args.window = 5;
  EXPECT_THROW(attention_cached(context, args, empty({1, 16})), Error);
  args.window = 0;
  EXPECT_THROW(attention_cached(context, args, empty({1, 16})), Error);
  args.begin = 14;
  EXPECT_THROW(append_to_cache(context, args), Error);
}

TEST_P(AttentionTest, RefusesHeadsThatGroupsDoNotDivide) {
  const AttentionShape shape{1, 4, 3, 2, 8};
  EXPECT_THROW(attention_forward(context, {.shape = shape,
                                           .in = split_qkv(shape, empty({4, shape.row()})),
                                           .out = empty({4, 24}),
                                           .log_sum_exp = empty_f32({1, 3, 4})}),
               Error);
  const AttentionShape odd{1, 4, 2, 2, 5};
  EXPECT_THROW(rotary(context, rotary_of(odd, empty({4, odd.row()}))), Error);
}

TRIDENT_KERNEL_SUITE(AttentionTest);

}  // namespace
}  // namespace trident
