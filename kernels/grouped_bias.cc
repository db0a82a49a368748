#include "kernels/grouped_bias.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_grouped(const Check& check, const Tensor& x, const char* name, std::int64_t experts,
                   const Tensor& ends, const Tensor& weights) {
  check.compute_dtype(x, name);
  check.rank(x, name, 2);
  check.dtype(ends, "ends", DType::i64);
  check.rank(ends, "ends", 1);
  check.that(experts > 0 && ends.dim(0) > 0 && ends.dim(0) % experts == 0,
             Check::describe(ends, "ends"), "an end for each expert of each source");
  if (!weights) return;
  check.dtype(weights, "weights", DType::f32);
  check.shape(weights, "weights", {x.dim(0)});
}

}  // namespace

void grouped_bias(Context& context, const GroupedBiasArgs& args) {
  const Check check("grouped_bias");
  check.rank(args.bias, "bias", 2);
  check_grouped(check, args.x, "x", args.bias.dim(0), args.ends, args.weights);
  check.dtype(args.bias, "bias", args.x.dtype());
  check.shape(args.bias, "bias", {args.bias.dim(0), args.x.dim(1)});
  launch(context, &Backend::grouped_bias, args);
}

void grouped_bias_backward(Context& context, const GroupedBiasBackwardArgs& args) {
  const Check check("grouped_bias_backward");
  const Tensor& biases = args.grad_bias ? args.grad_bias : args.bias;
  check.that(args.grad_bias || args.grad_weights, "no gradient", "grad_bias or grad_weights");
  check.rank(biases, "grad_bias or bias", 2);
  check_grouped(check, args.grad, "grad", biases.dim(0), args.ends, args.weights);
  const Shape shape{biases.dim(0), args.grad.dim(1)};
  if (args.grad_bias) {
    check.compute_dtype(args.grad_bias, "grad_bias");
    check.shape(args.grad_bias, "grad_bias", shape);
  }
  if (args.grad_weights) {
    check.dtype(args.bias, "bias", args.grad.dtype());
    check.shape(args.bias, "bias", shape);
    check.dtype(args.grad_weights, "grad_weights", DType::f32);
    check.shape(args.grad_weights, "grad_weights", {args.grad.dim(0)});
  }
  launch(context, &Backend::grouped_bias_backward, args);
}

}  // namespace trident
