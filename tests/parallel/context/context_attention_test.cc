// Attention over samples that ranks share, against an fp64 reference of complete samples, whose
// gradients are tested by numeric differences (tests/kernels/attention_test.cc).
#include "parallel/context/context_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/rng.h"
#include "parallel/transport/local_world.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using Exchange = ContextAttention::Exchange;

Values drawn(std::int64_t count, std::string_view name) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(random_normal(random_key(1, name), static_cast<std::uint64_t>(i)));
  }
  return values;
}

// The rows of a rank's pieces of each sample, `columns` wide.
Values own_rows(const Values& all, const SequencePieces& pieces, int rank, std::int64_t columns) {
  Values own;
  const std::int64_t sample = pieces.positions() * columns;
  for (auto begin = all.begin(); begin != all.end(); begin += sample) {
    for (const SequencePiece& piece : pieces.of(rank)) {
      own.insert(own.end(), begin + piece.begin * columns, begin + piece.end() * columns);
    }
  }
  return own;
}

Tensor put(Context& context, const Values& values, Shape shape) {
  return context.from_host<float>(shape, std::vector<float>(values.begin(), values.end()),
                                  Category::activation);
}

double error_of(Context& context, const Tensor& got, const Values& want) {
  const auto values = context.to_host<float>(got);
  return relative_error(Values(values.begin(), values.end()), want);
}

// `neighbours` exchange heads under a2a_p2p.
void expect_reference(const reference::Attention& a, Exchange exchange, int ranks,
                      int neighbours = 1) {
  const AttentionShape& s = a.shape;
  const std::int64_t positions = s.sequence;
  const Values qkv = drawn(s.batch * positions * s.row(), "qkv");
  const Values grad = drawn(s.batch * positions * s.out_row(), "grad");
  Values sinks;
  const Values out = a.forward(qkv);
  const Values grad_qkv = a.backward(qkv, grad, a.sinks.empty() ? nullptr : &sinks);
  const SequencePieces pieces(positions, ranks);
  const auto device = make_cpu_device();
  run_local(ranks, {}, [&](Transport& transport) {
    Context context(*device, 1);
    const ProcessGroup& world = transport.world();
    const int rank = world.rank();
    ContextAttention::Groups groups{.all = world};
    std::vector<int> heads, ring;
    for (int r = 0; r < ranks; ++r) {
      if (r / neighbours == rank / neighbours) heads.push_back(r);
      if (r % neighbours == rank % neighbours) ring.push_back(r);
    }
    if (neighbours > 1) {
      groups.heads = world.subgroup(heads, "heads");
      groups.ring = world.subgroup(ring, "ring");
    }
    const ContextAttention attention(groups, rank, ranks, exchange, neighbours);
    AttentionShape own = s;
    own.sequence = pieces.count(rank);
    const std::int64_t rows = s.batch * own.sequence;
    const auto rows_of = [&](const Values& all, std::int64_t columns) {
      return own_rows(all, pieces, rank, columns);
    };
    const Tensor in = put(context, rows_of(qkv, s.row()), {rows, s.row()});
    AttentionArgs args{.shape = own,
                       .in = split_qkv(own, in),
                       .out = context.empty({rows, s.out_row()}, DType::f32, Category::activation),
                       .log_sum_exp = attention.make_log_sum_exp(context, own, positions),
                       .mask = {.window = a.window}};
    if (!a.document_begins.empty()) {
      args.mask.document_begins = context.from_host<std::int64_t>(
          {s.batch, positions}, a.document_begins, Category::activation);
    }
    if (!a.sinks.empty()) args.sinks = put(context, a.sinks, {s.heads});
    if (a.probability > 0) {
      args.dropout = {static_cast<float>(a.probability), a.key,
                      context.from_host<std::int64_t>({s.batch}, a.samples, Category::activation)};
    }
    attention.forward(context, args, positions);
    EXPECT_LT(error_of(context, args.out, rows_of(out, s.out_row())), 2e-6) << "rank " << rank;

    const Tensor gradient = context.empty(in.shape(), DType::f32, Category::activation);
    const Tensor grad_sinks =
        a.sinks.empty() ? Tensor() : put(context, Values(a.sinks.size(), 0.0), {s.heads});
    attention.backward(context,
                       {.forward = args,
                        .grad_out = put(context, rows_of(grad, s.out_row()), args.out.shape()),
                        .grad = split_qkv(own, gradient),
                        .grad_sinks = grad_sinks},
                       positions);
    EXPECT_LT(error_of(context, gradient, rows_of(grad_qkv, s.row())), 1e-5) << "rank " << rank;
    if (a.sinks.empty()) return;
    world.all_reduce(context, grad_sinks);
    EXPECT_LT(error_of(context, grad_sinks, sinks), 1e-5) << "rank " << rank;
  });
}

reference::Attention causal(std::int64_t positions) {
  return {.shape = {.batch = 2,
                    .sequence = positions,
                    .heads = 8,
                    .groups = 4,
                    .head_dim = 6,
                    .value_head_dim = 5}};
}

std::vector<std::pair<const char*, reference::Attention>> cases() {
  const std::int64_t positions = 37;  // no number of ranks divides it
  auto window = causal(positions), documents = causal(positions), sinks = causal(positions),
       dropout = causal(positions);
  window.window = 4;
  for (std::int64_t t = 0; t < 2 * positions; ++t) {
    const std::int64_t place = t % positions;
    documents.document_begins.push_back(place - place % (t < positions ? 5 : 11));
  }
  sinks.sinks = drawn(8, "sinks");
  dropout.probability = 0.3;
  dropout.key = 7;
  dropout.samples = {3, 11};
  return {{"causal", causal(positions)}, {"even", causal(32)}, {"window", window},
          {"documents", documents},      {"sinks", sinks},     {"dropout", dropout}};
}

TEST(ContextAttention, IsThatOfCompleteSamplesInFp64) {
  for (const auto& [name, a] : cases()) {
    SCOPED_TRACE(name);
    for (const auto& [exchange, ranks, neighbours] : {std::tuple{Exchange::p2p, 1, 1},
                                                      {Exchange::p2p, 2, 1},
                                                      {Exchange::p2p, 5, 1},
                                                      {Exchange::all_gather, 3, 1},
                                                      {Exchange::a2a, 4, 1},
                                                      {Exchange::a2a_p2p, 4, 2},
                                                      {Exchange::a2a_p2p, 6, 2},
                                                      {Exchange::a2a_p2p, 8, 4}}) {
      SCOPED_TRACE(fmt::format("exchange {}, {} ranks", static_cast<int>(exchange), ranks));
      expect_reference(a, exchange, ranks, neighbours);
    }
  }
}

}  // namespace
}  // namespace trident
