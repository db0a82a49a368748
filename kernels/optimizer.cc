#include "kernels/optimizer.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_f32(const Check& check, const Tensor& x, const char* name, const Tensor& weight) {
  check.dtype(x, name, DType::f32);
  check.count(x, name, weight.numel());
}

void check_common(const Check& check, const Tensor& weight, const Tensor& gradient,
                  const Tensor& model_weight, std::int64_t step) {
  check.dtype(weight, "weight", DType::f32);
  check_f32(check, gradient, "gradient", weight);
  if (model_weight) {
    check.dtype(model_weight, "model_weight", DType::bf16);
    check.count(model_weight, "model_weight", weight.numel());
  }
  check.that(step >= 1, "step " + std::to_string(step), "1 or more");
}

}  // namespace

void adamw(Context& context, const AdamWArgs& args) {
  const Check check("adamw");
  check_common(check, args.weight, args.gradient, args.model_weight, args.step);
  check_f32(check, args.moment1, "moment1", args.weight);
  check_f32(check, args.moment2, "moment2", args.weight);
  launch(context, &Backend::adamw, args);
}

void sgd(Context& context, const SgdArgs& args) {
  const Check check("sgd");
  check_common(check, args.weight, args.gradient, args.model_weight, args.step);
  check.that(args.momentum == 0 || args.momentum_buffer.defined(),
             "momentum " + std::to_string(args.momentum) + " and no momentum_buffer", "one");
  if (args.momentum_buffer) check_f32(check, args.momentum_buffer, "momentum_buffer", args.weight);
  launch(context, &Backend::sgd, args);
}

}  // namespace trident
