#include "kernels/norm.h"

#include <string>

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

// A statistic: one fp32 value for each of the T rows.
void check_statistic(const Check& check, const Tensor& x, const char* name, std::int64_t rows) {
  check.dtype(x, name, DType::f32);
  check.shape(x, name, {rows});
}

void check_same_shape(const Check& check, const Tensor& x, const char* name, const Tensor& like) {
  check.dtype(x, name, like.dtype());
  check.shape(x, name, like.shape());
}

// The heads of `x`, with the statistics of their T rows. D is the weight's extent.
void check_normed(const Check& check, const HeadColumns& x, const Tensor& rstd, std::int64_t heads,
                  const Tensor& weight) {
  check.compute_dtype(x.rows, "x");
  check.rank(x.rows, "x", 2);
  check.rank(weight, "weight", 1);
  check.that(heads > 0, std::to_string(heads) + " heads", "at least 1");
  check_heads(check, x, "x", x.rows.dtype(), x.rows.dim(0), heads, weight.dim(0));
  check.dtype(rstd, "rstd", DType::f32);
  check.shape(rstd, "rstd", {heads, x.rows.dim(0)});
}
void check_like(const Check& check, const HeadColumns& x, const char* name, const HeadColumns& like,
                std::int64_t heads, std::int64_t dim) {
  check_heads(check, x, name, like.rows.dtype(), like.rows.dim(0), heads, dim);
}

}  // namespace

void norm_forward(Context& context, const NormArgs& args) {
  const Check check("norm_forward");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.weight, "weight", args.x.dtype());
  check.shape(args.weight, "weight", {args.x.dim(1)});
  check_same_shape(check, args.y, "y", args.x);
  check_statistic(check, args.rstd, "rstd", args.x.dim(0));
  check.that(args.bias.defined() == args.mean.defined(),
             args.bias ? "a bias and no mean" : "a mean and no bias",
             "both (LayerNorm) or none (RMSNorm)");
  if (args.bias) {
    check_same_shape(check, args.bias, "bias", args.weight);
    check_statistic(check, args.mean, "mean", args.x.dim(0));
  }
  launch(context, &Backend::norm_forward, args);
}

void norm_backward_input(Context& context, const NormBackwardArgs& args) {
  const Check check("norm_backward_input");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check.dtype(args.weight, "weight", args.x.dtype());
  check.shape(args.weight, "weight", {args.x.dim(1)});
  check_same_shape(check, args.grad_y, "grad_y", args.x);
  check_same_shape(check, args.grad_x, "grad_x", args.x);
  if (args.residual_grad) check_same_shape(check, args.residual_grad, "residual_grad", args.x);
  check_statistic(check, args.rstd, "rstd", args.x.dim(0));
  if (args.mean) check_statistic(check, args.mean, "mean", args.x.dim(0));
  launch(context, &Backend::norm_backward_input, args);
}

void norm_backward_weight(Context& context, const NormWeightArgs& args) {
  const Check check("norm_backward_weight");
  check.compute_dtype(args.x, "x");
  check.rank(args.x, "x", 2);
  check_same_shape(check, args.grad_y, "grad_y", args.x);
  check_statistic(check, args.rstd, "rstd", args.x.dim(0));
  check.that(args.grad_bias.defined() == args.mean.defined(),
             args.mean ? "a mean and no grad_bias" : "a grad_bias and no mean",
             "both (LayerNorm) or none (RMSNorm)");
  check.compute_dtype(args.grad_weight, "grad_weight");
  check.shape(args.grad_weight, "grad_weight", {args.x.dim(1)});
  if (args.mean) {
    check_statistic(check, args.mean, "mean", args.x.dim(0));
    check_same_shape(check, args.grad_bias, "grad_bias", args.grad_weight);
  }
  launch(context, &Backend::norm_backward_weight, args);
}

void head_norm_forward(Context& context, const HeadNormArgs& args) {
  const Check check("head_norm_forward");
  check_normed(check, args.x, args.rstd, args.heads, args.weight);
  check.dtype(args.weight, "weight", args.x.rows.dtype());
  check_like(check, args.y, "y", args.x, args.heads, args.weight.dim(0));
  launch(context, &Backend::head_norm_forward, args);
}

void head_norm_backward_input(Context& context, const HeadNormBackwardArgs& args) {
  const Check check("head_norm_backward_input");
  check_normed(check, args.x, args.rstd, args.heads, args.weight);
  check.dtype(args.weight, "weight", args.x.rows.dtype());
  check_like(check, args.grad_y, "grad_y", args.x, args.heads, args.weight.dim(0));
  check_like(check, args.grad_x, "grad_x", args.x, args.heads, args.weight.dim(0));
  launch(context, &Backend::head_norm_backward_input, args);
}

void head_norm_backward_weight(Context& context, const HeadNormWeightArgs& args) {
  const Check check("head_norm_backward_weight");
  check_normed(check, args.x, args.rstd, args.heads, args.grad_weight);
  check.compute_dtype(args.grad_weight, "grad_weight");
  check_like(check, args.grad_y, "grad_y", args.x, args.heads, args.grad_weight.dim(0));
  launch(context, &Backend::head_norm_backward_weight, args);
}

void row_dots(Context& context, const RowDotsArgs& args) {
  const Check check("row_dots");
  check.compute_dtype(args.x.rows, "x");
  check.rank(args.x.rows, "x", 2);
  check.that(args.columns > 0, std::to_string(args.columns) + " columns", "at least 1");
  check_like(check, args.x, "x", args.x, 1, args.columns);
  check_like(check, args.y, "y", args.x, 1, args.columns);
  if (args.weight) {
    check.dtype(args.weight, "weight", args.x.rows.dtype());
    check.shape(args.weight, "weight", {args.columns});
  }
  check.dtype(args.dots, "dots", DType::f32);
  check.shape(args.dots, "dots", {args.x.rows.dim(0)});
  launch(context, &Backend::row_dots, args);
}

void row_norm_forward(Context& context, const RowNormArgs& args) {
  const Check check("row_norm_forward");
  check_normed(check, args.x, args.rstd, 1, args.weight);
  check.dtype(args.weight, "weight", args.x.rows.dtype());
  check_like(check, args.y, "y", args.x, 1, args.weight.dim(0));
  check.dtype(args.squares, "squares", DType::f32);
  check.shape(args.squares, "squares", {args.x.rows.dim(0)});
  check.that(args.all_columns >= args.weight.dim(0),
             std::to_string(args.all_columns) + " columns in all", "at least those of the weight");
  launch(context, &Backend::row_norm_forward, args);
}

void row_norm_backward_input(Context& context, const RowNormBackwardArgs& args) {
  const Check check("row_norm_backward_input");
  check_normed(check, args.x, args.rstd, 1, args.weight);
  check.dtype(args.weight, "weight", args.x.rows.dtype());
  check_like(check, args.grad_y, "grad_y", args.x, 1, args.weight.dim(0));
  check_like(check, args.grad_x, "grad_x", args.x, 1, args.weight.dim(0));
  check.dtype(args.dots, "dots", DType::f32);
  check.shape(args.dots, "dots", {args.x.rows.dim(0)});
  check.that(args.all_columns >= args.weight.dim(0),
             std::to_string(args.all_columns) + " columns in all", "at least those of the weight");
  launch(context, &Backend::row_norm_backward_input, args);
}

}  // namespace trident
