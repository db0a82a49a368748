#include "kernels/norm.h"

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

}  // namespace trident
