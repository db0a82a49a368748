#include "kernels/experts.h"

#include <cstdint>
#include <limits>
#include <string>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {

void sort_by_expert(Context& context, const SortByExpertArgs& args) {
  const Check check("sort_by_expert");
  check.dtype(args.experts, "experts", DType::i32);
  check.rank(args.experts, "experts", 2);
  check.dtype(args.ends, "ends", DType::i64);
  check.rank(args.ends, "ends", 1);
  check.that(args.ends.dim(0) > 0, Check::describe(args.ends, "ends"), "an expert");
  check.dtype(args.rows, "rows", DType::i32);
  check.shape(args.rows, "rows", args.experts.shape());
  check.dtype(args.pairs, "pairs", DType::i32);
  check.shape(args.pairs, "pairs", {args.experts.numel()});
  check.that(args.experts.numel() <= std::numeric_limits<std::int32_t>::max(),
             std::to_string(args.experts.numel()) + " pairs", "at most 2^31 - 1");
  launch(context, &Backend::sort_by_expert, args);
}

void drop_pairs(Context& context, const DropPairsArgs& args) {
  const Check check("drop_pairs");
  check.dtype(args.experts, "experts", DType::i32);
  check.rank(args.experts, "experts", 2);
  check.dtype(args.counts, "counts", DType::i64);
  check.rank(args.counts, "counts", 2);
  check.that(args.capacity >= 1, "capacity " + std::to_string(args.capacity), "at least 1");
  const std::int64_t end = args.first_row + args.experts.dim(0);
  check.that(args.sequence >= 1 && args.first_row >= 0 && end <= args.counts.dim(0) * args.sequence,
             "rows " + std::to_string(args.first_row) + " to " + std::to_string(end),
             "rows of " + std::to_string(args.counts.dim(0)) + " samples of " +
                 std::to_string(args.sequence));
  check.dtype(args.kept, "kept", DType::i32);
  check.shape(args.kept, "kept", args.experts.shape());
  launch(context, &Backend::drop_pairs, args);
}

void gather_rows(Context& context, const GatherRowsArgs& args) {
  const Check check("gather_rows");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.indices, "indices", DType::i32);
  check.that(args.divisor >= 1, "divisor " + std::to_string(args.divisor), "at least 1");
  check.dtype(args.y, "y", args.x.dtype());
  check.shape(args.y, "y", {args.indices.numel(), args.x.dim(1)});
  launch(context, &Backend::gather_rows, args);
}

void sum_rows(Context& context, const SumRowsArgs& args) {
  const Check check("sum_rows");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.rows, "rows", DType::i32);
  check.rank(args.rows, "rows", 2);
  check.dtype(args.y, "y", args.x.dtype());
  check.shape(args.y, "y", {args.rows.dim(0), args.x.dim(1)});
  launch(context, &Backend::sum_rows, args);
}

namespace {

// Checks x (R, 2F) and weights (R) beside y (R, F).
void check_activation(const Check& check, const Tensor& x, const Tensor& weights, const Tensor& y,
                      const char* name) {
  check.compute_dtype(x, "x");
  check.rank(x, "x", 2);
  check.that(x.dim(1) % 2 == 0, Check::describe(x, "x"), "a gate and an up projection");
  check.dtype(weights, "weights", DType::f32);
  check.shape(weights, "weights", {x.dim(0)});
  check.dtype(y, name, x.dtype());
  check.shape(y, name, {x.dim(0), x.dim(1) / 2});
}

}  // namespace

void expert_activation(Context& context, const ExpertActivationArgs& args) {
  check_activation(Check("expert_activation"), args.x, args.weights, args.y, "y");
  launch(context, &Backend::expert_activation, args);
}

void expert_activation_backward(Context& context, const ExpertActivationBackwardArgs& args) {
  const Check check("expert_activation_backward");
  check_activation(check, args.x, args.weights, args.grad_y, "grad_y");
  check.dtype(args.grad_x, "grad_x", args.x.dtype());
  check.shape(args.grad_x, "grad_x", args.x.shape());
  check.dtype(args.grad_weights, "grad_weights", DType::f32);
  check.shape(args.grad_weights, "grad_weights", args.weights.shape());
  check.dtype(args.y, "y", args.x.dtype());
  check.shape(args.y, "y", args.grad_y.shape());
  launch(context, &Backend::expert_activation_backward, args);
}

void gate_rows(Context& context, const GateRowsArgs& args) {
  const Check check("gate_rows");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.gates, "gates", args.x.dtype());
  check.shape(args.gates, "gates", {args.x.dim(0), 1});
  check.dtype(args.y, "y", args.x.dtype());
  check.shape(args.y, "y", args.x.shape());
  launch(context, &Backend::gate_rows, args);
}

void gate_rows_backward(Context& context, const GateRowsBackwardArgs& args) {
  const Check check("gate_rows_backward");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  for (const auto& [tensor, name] :
       {std::pair(args.gates, "gates"), std::pair(args.grad_gates, "grad_gates")}) {
    check.dtype(tensor, name, args.x.dtype());
    check.shape(tensor, name, {args.x.dim(0), 1});
  }
  for (const auto& [tensor, name] :
       {std::pair(args.grad_y, "grad_y"), std::pair(args.grad_x, "grad_x")}) {
    check.dtype(tensor, name, args.x.dtype());
    check.shape(tensor, name, args.x.shape());
  }
  launch(context, &Backend::gate_rows_backward, args);
}

}  // namespace trident
