// The cost of each kernel, for the operation trace of a context: the FLOPs of products, and the
// bytes of each tensor, counted once.
#include <algorithm>
#include <functional>
#include <initializer_list>

#include "core/operation_trace.h"
#include "kernels/backend.h"

namespace trident {
namespace {

using A = const Access&;
using C = Context&;
using T = const Tensor&;
using List = std::initializer_list<std::reference_wrapper<const Tensor>>;

std::int64_t bytes_of(const List& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor ? tensor.bytes() : 0;
  return bytes;
}

std::int64_t bytes_in(DType dtype, std::int64_t count) {
  return static_cast<std::int64_t>(size_of(dtype)) * count;
}

// `of` is the tensor whose shape and dtype describe the operation. A tensor that the kernel
// accumulates into appears both in `reads` and in `writes`.
void record(C context, std::string_view name, T of, const List& reads, const List& writes,
            std::int64_t bytes_if_unfused = 0) {
  context.trace()->add({.name = name,
                        .shape = of.shape(),
                        .dtype = of.dtype(),
                        .bytes_read = bytes_of(reads),
                        .bytes_written = bytes_of(writes),
                        .bytes_if_unfused = bytes_if_unfused});
}

// A norm of heads, which are `read` operands and `written` results of (T, heads · D) elements.
void record_heads(C context, std::string_view name, DType dtype, T rstd, T weight,
                  std::int64_t read, std::int64_t written, const List& reads, const List& writes) {
  const Shape shape{rstd.dim(1), rstd.dim(0) * weight.dim(0)};
  const std::int64_t bytes = bytes_in(dtype, shape.numel());
  context.trace()->add({.name = name,
                        .shape = shape,
                        .dtype = dtype,
                        .bytes_read = read * bytes + bytes_of(reads),
                        .bytes_written = written * bytes + bytes_of(writes)});
}

// Parts of `read` heads that are read, and of `written` ones.
void record_parts(C context, std::string_view name, const HeadPartsArgs& args, std::int64_t read,
                  std::int64_t written) {
  const DType dtype = args.from.rows.dtype();
  const std::int64_t part = bytes_in(dtype, args.from.rows.dim(0) * args.dim);
  context.trace()->add({.name = name,
                        .shape = {args.from.rows.dim(0), args.heads * args.dim},
                        .dtype = dtype,
                        .bytes_read = read * part,
                        .bytes_written = written * part});
}

// The extra traffic if the loss ran as separate fp32 operations, as PyTorch runs it: a copy, the
// maximum, differences, exponentials, their sum, probabilities, the gradient and a copy back. It
// comes on top of the bytes that one fused kernel reads and writes.
std::int64_t cross_entropy_apart(T logits) {
  return bytes_in(DType::f32, 12 * logits.numel());
}

void gemm(A, C context, const GemmArgs& args) {
  const std::int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  const Shape shape{args.c.dim(0), args.c.dim(1), k};
  const double flops = 2.0 * static_cast<double>(shape.numel());
  context.trace()->add(
      {.name = "gemm",
       .shape = shape,
       .dtype = args.a.dtype(),
       .flops = flops,
       .model_flops = flops,
       .bytes_read = bytes_of({args.a, args.b, args.bias, args.gelu_input, args.bias_gradient,
                               args.accumulate ? args.c : args.bias}),
       .bytes_written = bytes_of({args.c, args.pre_activation, args.bias_gradient}),
       .bytes_if_unfused = (args.pre_activation ? 2
                            : args.gelu_input   ? 3
                                                : 0) *
                               args.c.bytes() +
                           (args.bias_gradient ? args.a.bytes() : 0),
       .bytes_to_add =
           args.accumulate ? 2 * args.c.bytes() + bytes_in(args.a.dtype(), args.c.numel()) : 0,
       .transpose_a = args.transpose_a,
       .transpose_b = args.transpose_b});
}

// Every row counts, though some may belong to no expert.
void grouped_gemm(A, C context, const GroupedGemmArgs& args) {
  const Shape shape{args.c.dim(0), args.c.dim(1), args.a.dim(1)};
  const double flops = 2.0 * static_cast<double>(shape.numel());
  context.trace()->add({.name = "grouped_gemm",
                        .shape = shape,
                        .dtype = args.a.dtype(),
                        .flops = flops,
                        .model_flops = flops,
                        .bytes_read = bytes_of({args.a, args.b, args.ends}),
                        .bytes_written = args.c.bytes(),
                        .transpose_b = args.transpose_b});
}

void grouped_weight_gemm(A, C context, const GroupedWeightGemmArgs& args) {
  const Shape shape{args.c.dim(1), args.c.dim(2), args.a.dim(0)};
  const double flops = 2.0 * static_cast<double>(shape.numel());
  context.trace()->add(
      {.name = "grouped_weight_gemm",
       .shape = shape,
       .dtype = args.a.dtype(),
       .flops = flops,
       .model_flops = flops,
       .bytes_read = bytes_of({args.a, args.b, args.ends}) + (args.accumulate ? args.c.bytes() : 0),
       .bytes_written = args.c.bytes(),
       .bytes_to_add =
           args.accumulate ? 2 * args.c.bytes() + bytes_in(args.a.dtype(), args.c.numel()) : 0,
       .transpose_a = true});
}

// The pairs of a query and a key that a sample's head computes, documents aside: the area below the
// causal diagonal, less the area that the window hides. S²/2 for S positions without a window.
double visible_pairs(const AttentionShape& shape, const AttentionMask& mask) {
  const auto queries = static_cast<double>(shape.sequence),
             keys = static_cast<double>(shape.keys());
  const auto offset = static_cast<double>(mask.offset());
  // The integral of min(max(x, 0), keys) from 0.
  const auto below = [&](double x) {
    return x <= 0 ? 0 : x < keys ? x * x / 2 : keys * keys / 2 + keys * (x - keys);
  };
  const auto area = [&](double shift) { return below(queries + shift) - below(shift); };
  const double hidden = mask.window > 0 ? area(offset - static_cast<double>(mask.window)) : 0;
  return area(offset) - hidden;
}

// The cost of attention. For each visible pair of a query and a key the kernel computes `by_key`
// products of D elements and `by_value` of E elements. The papers' count, model_flops, has
// `counted` of the former, and twice the pairs: it ignores the causal mask.
TracedOperation attention(std::string_view name, const AttentionArgs& args, double by_key,
                          double by_value, double counted) {
  const AttentionShape& shape = args.shape;
  const double pairs =
      2.0 * static_cast<double>(shape.batch * shape.heads) * visible_pairs(shape, args.mask);
  const auto d = static_cast<double>(shape.head_dim), e = static_cast<double>(shape.value_dim());
  return {.name = name,
          .shape = args.out.shape(),
          .dtype = args.out.dtype(),
          .flops = pairs * (by_key * d + by_value * e),
          .model_flops = 2 * pairs * (counted * d + by_value * e)};
}

// The bytes of all query, key and value heads of a call.
std::int64_t qkv_bytes(const AttentionShape& shape, DType dtype) {
  const std::int64_t queries = shape.batch * shape.sequence * shape.heads * shape.head_dim;
  const std::int64_t pairs =
      shape.batch * shape.keys() * shape.groups * (shape.head_dim + shape.value_dim());
  return bytes_in(dtype, queries + pairs);
}

void attention_forward(A, C context, const AttentionArgs& args) {
  TracedOperation cost = attention("attention_forward", args, 1, 1, 1);
  cost.bytes_read = qkv_bytes(args.shape, args.out.dtype());
  cost.bytes_written = bytes_of({args.out, args.log_sum_exp});
  context.trace()->add(cost);
}
// Backward computes five products: the scores again, and the gradients of values, probabilities,
// queries and keys.
void attention_backward(A, C context, const AttentionBackwardArgs& args) {
  const AttentionArgs& forward = args.forward;
  TracedOperation cost = attention("attention_backward", forward, 3, 2, 2);
  const std::int64_t qkv = qkv_bytes(forward.shape, forward.out.dtype());
  cost.shape = {forward.out.dim(0), forward.shape.row()};
  cost.bytes_read = qkv + bytes_of({forward.out, forward.log_sum_exp, args.grad_out});
  cost.bytes_written = qkv;
  context.trace()->add(cost);
}

// Each query attends to the positions up to itself, at most `window` of them.
void attention_cached(A, C context, const CacheArgs& args, T out) {
  const AttentionShape& shape = args.shape;
  const std::int64_t held = args.begin - args.cache_begin;
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, held + 1 - args.window) : 0;
  const auto most = static_cast<double>(args.window > 0 ? args.window : held + shape.sequence);
  const double keys =
      std::min(most, static_cast<double>(held) + static_cast<double>(shape.sequence + 1) / 2);
  const double flops = 2.0 * keys * static_cast<double>(shape.batch * shape.sequence) *
                       static_cast<double>(shape.heads * (shape.head_dim + shape.value_dim()));
  context.trace()->add(
      {.name = "attention_cached",
       .shape = out.shape(),
       .dtype = out.dtype(),
       .flops = flops,
       .model_flops = flops,
       .bytes_read = qkv_bytes(shape, out.dtype()) +
                     bytes_in(args.cache.dtype(), shape.batch * (held - first) * args.cache.dim(2)),
       .bytes_written = out.bytes()});
}

}  // namespace

const Backend& costs_backend() {
  static constexpr Backend backend = {
      .instructions = nullptr,
      .gemm = gemm,
      .fill = [](A, C c, T x, double) { record(c, "fill", x, {}, {x}); },
      .copy = [](A, C c, T from, T to) { record(c, "copy", to, {from}, {to}); },
      .add =
          [](A, C c, T x, T y) {
            record(c, "add", y, {x, y}, {y});
          },
      .scale = [](A, C c, T x, float) { record(c, "scale", x, {x}, {x}); },
      .lerp =
          [](A, C c, T x, T target, float) {
            record(c, "lerp", x, {x, target}, {x});
          },
      .add_bias =
          [](A, C c, T x, T bias, T y) {
            record(c, "add_bias", y, {x, bias}, {y});
          },
      .bias_backward =
          [](A, C c, T grad_y, T grad_bias) {
            record(c, "bias_backward", grad_y, {grad_y, grad_bias}, {grad_bias});
          },
      .sum = [](A, C c, T x, T total) { record(c, "sum", x, {x}, {total}); },
      .square_sums = [](A, C c, T x, std::int64_t,
                        T out) { record(c, "square_sums", x, {x}, {out}); },
      .square_sums_of_all = nullptr,  // a trace records its calls one by one
      .exact_sum =
          [](A, C c, T x, T state) {
            record(c, "exact_sum", x, {x, state}, {state});
          },
      .fill_normal = [](A, C c, const NormalArgs& a) { record(c, "fill_normal", a.x, {}, {a.x}); },
      .norm_forward =
          [](A, C c, const NormArgs& a) {
            record(c, "norm_forward", a.y, {a.x, a.weight, a.bias}, {a.y, a.mean, a.rstd});
          },
      .norm_backward_input =
          [](A, C c, const NormBackwardArgs& a) {
            record(c, "norm_backward_input", a.grad_x,
                   {a.grad_y, a.x, a.weight, a.mean, a.rstd, a.residual_grad}, {a.grad_x},
                   a.residual_grad ? 2 * a.grad_x.bytes() : 0);
          },
      .norm_backward_weight =
          [](A, C c, const NormWeightArgs& a) {
            record(c, "norm_backward_weight", a.grad_y,
                   {a.grad_y, a.x, a.mean, a.rstd, a.grad_weight, a.grad_bias},
                   {a.grad_weight, a.grad_bias});
          },
      .head_norm_forward =
          [](A, C c, const HeadNormArgs& a) {
            record_heads(c, "head_norm_forward", a.x.rows.dtype(), a.rstd, a.weight, 1, 1,
                         {a.weight}, {a.rstd});
          },
      .head_norm_backward_input =
          [](A, C c, const HeadNormBackwardArgs& a) {
            record_heads(c, "head_norm_backward_input", a.x.rows.dtype(), a.rstd, a.weight, 2, 1,
                         {a.weight, a.rstd}, {});
          },
      .head_norm_backward_weight =
          [](A, C c, const HeadNormWeightArgs& a) {
            record_heads(c, "head_norm_backward_weight", a.x.rows.dtype(), a.rstd, a.grad_weight, 2,
                         0, {a.rstd, a.grad_weight}, {a.grad_weight});
          },
      .row_dots =
          [](A, C c, const RowDotsArgs& a) {
            const Shape shape{a.x.rows.dim(0), a.columns};
            const bool same = !a.weight;
            c.trace()->add(
                {.name = "row_dots",
                 .shape = shape,
                 .dtype = a.x.rows.dtype(),
                 .bytes_read = (same ? 1 : 2) * bytes_in(a.x.rows.dtype(), shape.numel()),
                 .bytes_written = a.dots.bytes()});
          },
      .row_norm_forward =
          [](A, C c, const RowNormArgs& a) {
            record_heads(c, "row_norm_forward", a.x.rows.dtype(), a.rstd, a.weight, 1, 1,
                         {a.weight, a.squares}, {a.rstd});
          },
      .row_norm_backward_input =
          [](A, C c, const RowNormBackwardArgs& a) {
            record_heads(c, "row_norm_backward_input", a.x.rows.dtype(), a.rstd, a.weight, 2, 1,
                         {a.weight, a.rstd, a.dots}, {});
          },
      .gelu_forward = [](A, C c, T x, T y) { record(c, "gelu_forward", y, {x}, {y}); },
      .gelu_backward =
          [](A, C c, T x, T grad_y, T grad_x) {
            record(c, "gelu_backward", grad_x, {x, grad_y}, {grad_x});
          },
      .swiglu_forward = [](A, C c, T x, T y) { record(c, "swiglu_forward", y, {x}, {y}); },
      .swiglu_backward =
          [](A, C c, T x, T grad_y, T grad_x) {
            record(c, "swiglu_backward", grad_x, {x, grad_y}, {grad_x});
          },
      .route =
          [](A, C c, const RouteArgs& a) {
            record(c, "route", a.logits, {a.logits, a.bias}, {a.experts, a.weights});
          },
      .route_backward =
          [](A, C c, const RouteBackwardArgs& a) {
            record(c, "route_backward", a.logits,
                   {a.logits, a.experts, a.grad_weights, a.grad_probabilities}, {a.grad_logits});
          },
      .routing_sums =
          [](A, C c, const RoutingSumsArgs& a) {
            record(c, "routing_sums", a.logits, {a.logits, a.experts},
                   {a.counts, a.probabilities, a.squares, a.entropies, a.reported});
          },
      .balance =
          [](A, C c, const BalanceArgs& a) {
            record(c, "balance", a.shares, {a.counts, a.probabilities}, {a.shares, a.losses});
          },
      .update_expert_bias =
          [](A, C c, const UpdateExpertBiasArgs& a) {
            record(c, "update_expert_bias", a.bias, {a.counts, a.bias}, {a.bias});
          },
      .sort_by_expert =
          [](A, C c, const SortByExpertArgs& a) {
            record(c, "sort_by_expert", a.experts, {a.experts}, {a.ends, a.rows, a.pairs});
          },
      .drop_pairs =
          [](A, C c, const DropPairsArgs& a) {
            record(c, "drop_pairs", a.kept, {a.experts, a.counts}, {a.kept, a.counts});
          },
      .gather_rows =
          [](A, C c, const GatherRowsArgs& a) {
            record(c, "gather_rows", a.y, {a.y, a.indices}, {a.y});
          },
      .sum_rows =
          [](A, C c, const SumRowsArgs& a) {
            if (a.accumulate) {
              record(c, "sum_rows", a.y, {a.x, a.rows, a.y}, {a.y});
            } else {
              record(c, "sum_rows", a.y, {a.x, a.rows}, {a.y});
            }
          },
      .expert_activation =
          [](A, C c, const ExpertActivationArgs& a) {
            record(c, "expert_activation", a.y, {a.x, a.weights}, {a.y});
          },
      .expert_activation_backward =
          [](A, C c, const ExpertActivationBackwardArgs& a) {
            record(c, "expert_activation_backward", a.grad_x, {a.x, a.weights, a.grad_y},
                   {a.grad_x, a.grad_weights, a.y});
          },
      .gate_rows =
          [](A, C c, const GateRowsArgs& a) {
            record(c, "gate_rows", a.y, {a.x, a.gates, a.y}, {a.y});
          },
      .gate_rows_backward =
          [](A, C c, const GateRowsBackwardArgs& a) {
            record(c, "gate_rows_backward", a.grad_x, {a.x, a.gates, a.grad_y},
                   {a.grad_x, a.grad_gates});
          },
      .grouped_gemm = grouped_gemm,
      .grouped_weight_gemm = grouped_weight_gemm,
      .grouped_bias =
          [](A, C c, const GroupedBiasArgs& a) {
            record(c, "grouped_bias", a.x, {a.bias, a.weights, a.x}, {a.x});
          },
      .grouped_bias_backward =
          [](A, C c, const GroupedBiasBackwardArgs& a) {
            record(c, "grouped_bias_backward", a.grad,
                   {a.bias, a.weights, a.grad, a.grad_bias, a.grad_weights},
                   {a.grad_bias, a.grad_weights});
          },
      // Of the table, only the rows that are looked up are counted.
      .embedding_forward =
          [](A, C c, const EmbeddingArgs& a) {
            record(c, "embedding_forward", a.out, {a.ids, a.out}, {a.out});
          },
      .embedding_backward =
          [](A, C c, const EmbeddingBackwardArgs& a) {
            record(c, "embedding_backward", a.grad_out, {a.ids, a.grad_out, a.grad_out},
                   {a.grad_out});
          },
      .position_forward =
          [](A, C c, const PositionArgs& a) {
            record(c, "position_forward", a.x, {a.x, a.table}, {a.x});
          },
      .position_backward =
          [](A, C c, const PositionBackwardArgs& a) {
            record(c, "position_backward", a.grad_x, {a.grad_x, a.grad_table}, {a.grad_table});
          },
      .cross_entropy_maximum =
          [](A, C c, const CrossEntropyShape&, T logits, T maximum) {
            record(c, "cross_entropy_maximum", logits, {logits}, {maximum});
          },
      .cross_entropy_statistics =
          [](A, C c, const CrossEntropyShape&, T logits, T labels, T maximum, T statistics) {
            record(c, "cross_entropy_statistics", logits, {logits, labels, maximum}, {statistics});
          },
      .cross_entropy_losses =
          [](A, C c, const CrossEntropyShape&, T statistics, T losses) {
            record(c, "cross_entropy_losses", losses, {statistics}, {losses});
          },
      .cross_entropy =
          [](A, C c, const CrossEntropyShape&, T logits, T labels, T losses,
             std::optional<float> scale) {
            record(c, "cross_entropy", logits, {logits, labels}, {losses, scale ? logits : losses},
                   cross_entropy_apart(logits));
          },
      .cross_entropy_gradient =
          [](A, C c, const CrossEntropyShape&, T logits, T labels, T maximum, T statistics, float) {
            record(c, "cross_entropy_gradient", logits, {logits, labels, maximum, statistics},
                   {logits}, cross_entropy_apart(logits));
          },
      .attention_forward = attention_forward,
      .append_to_cache =
          [](A, C c, const CacheArgs& args) {
            const AttentionShape& shape = args.shape;
            const Shape added{shape.batch * (shape.sequence - args.skipped), args.cache.dim(2)};
            const std::int64_t bytes = bytes_in(args.cache.dtype(), added.numel());
            c.trace()->add({.name = "append_to_cache",
                            .shape = added,
                            .dtype = args.cache.dtype(),
                            .bytes_read = bytes,
                            .bytes_written = bytes});
          },
      .attention_cached = attention_cached,
      .attention_backward = attention_backward,
      .merge_attention =
          [](A, C c, const AttentionMergeArgs& a) {
            record(c, "merge_attention", a.out, {a.part, a.part_log_sum_exp, a.out, a.log_sum_exp},
                   {a.out, a.log_sum_exp});
          },
      .copy_heads =
          [](A, C c, const HeadPartsArgs& a) {
            record_parts(c, "copy_heads", a, a.from.stride == 0 ? 1 : a.heads, a.heads);
          },
      .sum_heads = [](A, C c,
                      const HeadPartsArgs& a) { record_parts(c, "sum_heads", a, a.heads, 1); },
      .rotary =
          [](A, C c, const RotaryArgs& a) {
            const std::int64_t rows = a.x.rows.dim(0), width = a.heads * a.head_dim;
            const std::int64_t bytes = bytes_in(a.x.rows.dtype(), rows * width);
            c.trace()->add({.name = "rotary",
                            .shape = {rows, width},
                            .dtype = a.x.rows.dtype(),
                            .bytes_read = bytes,
                            .bytes_written = bytes});
          },
      .dropout_add =
          [](A, C c, const DropoutAddArgs& a) {
            record(c, "dropout_add", a.y, {a.x, a.residual}, {a.y});
          },
      .adam =
          [](A, C c, const AdamArgs& a) {
            record(c, "adam", a.weight, {a.weight, a.gradient, a.moment1, a.moment2},
                   {a.weight, a.moment1, a.moment2, a.model_weight});
          },
      .sgd =
          [](A, C c, const SgdArgs& a) {
            record(c, "sgd", a.weight, {a.weight, a.gradient, a.momentum_buffer},
                   {a.weight, a.momentum_buffer, a.model_weight});
          },
      .adam_of_all = nullptr,
      .sgd_of_all = nullptr,
      .adafactor_squares =
          [](A, C c, const AdafactorSquares& a) {
            record(c, "adafactor_squares", a.part.gradient,
                   {a.part.weight, a.part.gradient, a.rows, a.columns, a.weights},
                   {a.rows, a.columns, a.weights});
          },
      .adafactor_factors =
          [](A, C c, const AdafactorFactors& a) {
            record(c, "adafactor_factors", a.factors,
                   {a.row_sums, a.column_sums, a.row_state, a.column_state},
                   {a.row_state, a.column_state, a.factors});
          },
      .adafactor_size =
          [](A, C c, const AdafactorSize& a) {
            record(c, "adafactor_size", a.part.gradient,
                   {a.part.gradient, a.factors, a.column_state, a.size}, {a.size});
          },
      .adafactor_update =
          [](A, C c, const AdafactorUpdate& a) {
            record(c, "adafactor_update", a.part.weight,
                   {a.part.weight, a.part.gradient, a.factors, a.column_state, a.sizes},
                   {a.part.weight, a.part.model_weight});
          },
      .copy_peer = nullptr,
      .reduce_peers = nullptr,
  };
  return backend;
}

}  // namespace trident
