#include "kernels/gemm.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {

void gemm(Context& context, const GemmArgs& args) {
  const Check check("gemm");
  check.rank(args.a, "a", 2);
  check.rank(args.b, "b", 2);
  check.compute_dtype(args.a, "a");
  check.dtype(args.b, "b", args.a.dtype());
  const std::int64_t m = args.a.dim(args.transpose_a ? 1 : 0);
  const std::int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  const std::int64_t n = args.b.dim(args.transpose_b ? 0 : 1);
  check.that(k > 0, "k 0", "at least 1");
  check.shape(args.b, "b", args.transpose_b ? Shape{n, k} : Shape{k, n});
  check.shape(args.c, "c", {m, n});
  if (args.c.dtype() != DType::f32) check.dtype(args.c, "c", args.a.dtype());
  if (args.bias) {
    check.shape(args.bias, "bias", {n});
    check.dtype(args.bias, "bias", args.a.dtype());
  }
  const auto check_like_c = [&](const Tensor& x, const char* name) {
    check.shape(x, name, {m, n});
    check.dtype(x, name, args.c.dtype());
    check.that(!args.accumulate, std::string(name) + " and accumulate", "only one of them");
  };
  check.that(static_cast<int>(args.pre_activation.defined()) + args.gelu_input.defined() +
                     args.bias_gradient.defined() <
                 2,
             "several of pre_activation, gelu_input and bias_gradient", "at most one");
  if (args.pre_activation) check_like_c(args.pre_activation, "pre_activation");
  if (args.gelu_input) {
    check_like_c(args.gelu_input, "gelu_input");
    check.that(!args.bias, "gelu_input and bias", "only one of them");
  }
  if (args.bias_gradient) {
    check.that(args.transpose_a, "bias_gradient without transpose_a", "both of them");
    check.compute_dtype(args.bias_gradient, "bias_gradient");
    check.shape(args.bias_gradient, "bias_gradient", {m});
  }
  launch(context, &Backend::gemm, args);
}

}  // namespace trident
