#include "kernels/routing.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_shape(const Check& check, const RouterShape& shape, const Tensor& logits,
                 const Tensor& experts) {
  check.dtype(logits, "logits", DType::f32);
  check.rank(logits, "logits", 2);
  check.shape(logits, "logits", {logits.dim(0), shape.experts});
  check.dtype(experts, "experts", DType::i32);
  check.shape(experts, "experts", {logits.dim(0), shape.topk});
  check.that(shape.groups >= 1 && shape.groups <= 64 && shape.experts % shape.groups == 0,
             std::to_string(shape.groups) + " groups",
             "a divisor of the number of experts up to 64");
  check.that(shape.groups == 1 || shape.experts / shape.groups > 1, "groups of one expert",
             "two or more in a group");
  check.that(shape.group_topk >= 1 && shape.group_topk <= shape.groups,
             std::to_string(shape.group_topk) + " groups to take", "1 to the number of groups");
  check.that(shape.topk >= 1 && shape.topk <= shape.candidates(),
             std::to_string(shape.topk) + " experts a token",
             "1 to " + std::to_string(shape.candidates()));
}

// Requires `per_sample` (B, E) whose samples have all tokens.
void check_samples(const Check& check, const Tensor& per_sample, const char* name, DType dtype,
                   const Tensor& logits, std::int64_t sequence, std::int64_t first_row) {
  check.dtype(per_sample, name, dtype);
  check.rank(per_sample, name, 2);
  check.shape(per_sample, name, {per_sample.dim(0), logits.dim(1)});
  check.that(
      sequence >= 1 && first_row >= 0 && first_row + logits.dim(0) <= per_sample.dim(0) * sequence,
      std::to_string(logits.dim(0)) + " tokens from row " + std::to_string(first_row),
      "rows of " + std::to_string(per_sample.dim(0)) + " samples of " + std::to_string(sequence));
}

}  // namespace

void route(Context& context, const RouteArgs& args) {
  const Check check("route");
  check_shape(check, args.shape, args.logits, args.experts);
  if (args.bias) {
    check.dtype(args.bias, "bias", DType::f32);
    check.shape(args.bias, "bias", {args.shape.experts});
  }
  check.dtype(args.weights, "weights", DType::f32);
  check.shape(args.weights, "weights", args.experts.shape());
  launch(context, &Backend::route, args);
}

void route_backward(Context& context, const RouteBackwardArgs& args) {
  const Check check("route_backward");
  check_shape(check, args.shape, args.logits, args.experts);
  check.dtype(args.grad_weights, "grad_weights", DType::f32);
  check.shape(args.grad_weights, "grad_weights", args.experts.shape());
  if (args.grad_probabilities) {
    check_samples(check, args.grad_probabilities, "grad_probabilities", DType::f32, args.logits,
                  args.sequence, args.first_row);
  }
  check.dtype(args.grad_logits, "grad_logits", DType::f32);
  check.shape(args.grad_logits, "grad_logits", args.logits.shape());
  launch(context, &Backend::route_backward, args);
}

void routing_sums(Context& context, const RoutingSumsArgs& args) {
  const Check check("routing_sums");
  check_shape(check, args.shape, args.logits, args.experts);
  check_samples(check, args.counts, "counts", DType::i64, args.logits, args.sequence,
                args.first_row);
  check.dtype(args.probabilities, "probabilities", DType::f64);
  check.shape(args.probabilities, "probabilities", args.counts.shape());
  check.dtype(args.squares, "squares", DType::f32);
  check.shape(args.squares, "squares", {args.logits.dim(0)});
  if (args.entropies) {
    check.dtype(args.entropies, "entropies", DType::f32);
    check.shape(args.entropies, "entropies", {args.logits.dim(0)});
  }
  if (args.reported) {
    check.dtype(args.reported, "reported", DType::i64);
    check.shape(args.reported, "reported", {args.shape.experts});
  }
  launch(context, &Backend::routing_sums, args);
}

void balance(Context& context, const BalanceArgs& args) {
  const Check check("balance");
  check.dtype(args.counts, "counts", DType::i64);
  check.rank(args.counts, "counts", 2);
  check.dtype(args.probabilities, "probabilities", DType::f64);
  check.shape(args.probabilities, "probabilities", args.counts.shape());
  check.dtype(args.shares, "shares", DType::f32);
  check.shape(args.shares, "shares", args.counts.shape());
  check.dtype(args.losses, "losses", DType::f64);
  check.shape(args.losses, "losses", {args.counts.dim(0)});
  launch(context, &Backend::balance, args);
}

void update_expert_bias(Context& context, const UpdateExpertBiasArgs& args) {
  const Check check("update_expert_bias");
  check.dtype(args.counts, "counts", DType::i64);
  check.rank(args.counts, "counts", 1);
  check.dtype(args.bias, "bias", DType::f32);
  check.shape(args.bias, "bias", args.counts.shape());
  launch(context, &Backend::update_expert_bias, args);
}

}  // namespace trident
