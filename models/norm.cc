#include "models/norm.h"

#include "kernels/norm.h"

namespace trident {

Norm::Norm(const ParallelContext& parallel, const std::string& name, std::int64_t hidden,
           float epsilon, bool bias)
    : epsilon_(epsilon) {
  const auto make = [&](const std::string& part, Initial initial) {
    return Weight(
        std::make_shared<Parameter>(ParameterSpec{.name = name + part,
                                                  .placement = parallel.replicated({hidden}),
                                                  .initial = initial,
                                                  .role = ParameterRole::vector}));
  };
  weight_ = make(".weight", Initial::ones());
  if (bias) bias_ = make(".bias", Initial::zeros());
}

Tensor Norm::forward(Context& context, WeightVersion version, const Tensor& x,
                     NormActivations& saved) const {
  const std::int64_t rows = x.dim(0);
  Tensor y = context.empty(x.shape(), x.dtype(), Category::activation);
  saved.x = x;
  saved.rstd = context.empty({rows}, DType::f32, Category::activation);
  if (bias_) saved.mean = context.empty({rows}, DType::f32, Category::activation);
  norm_forward(context, {.x = x,
                         .weight = weight_.acquire(version).tensor(),
                         .bias = bias_ ? bias_.acquire(version).tensor() : Tensor(),
                         .y = y,
                         .mean = saved.mean,
                         .rstd = saved.rstd,
                         .epsilon = epsilon_});
  return y;
}

Tensor Norm::backward_input(Context& context, WeightVersion version, const Tensor& grad_y,
                            const Tensor& residual_grad, NormActivations& saved) const {
  saved.gradient = grad_y;
  Tensor grad_x = context.empty(grad_y.shape(), grad_y.dtype(), Category::activation);
  norm_backward_input(context, {.grad_y = grad_y,
                                .x = saved.x,
                                .weight = weight_.acquire(version).tensor(),
                                .mean = saved.mean,
                                .rstd = saved.rstd,
                                .grad_x = grad_x,
                                .residual_grad = residual_grad});
  return grad_x;
}

void Norm::backward_weight(Context& context, NormActivations& saved) const {
  norm_backward_weight(context, {.grad_y = saved.gradient,
                                 .x = saved.x,
                                 .mean = saved.mean,
                                 .rstd = saved.rstd,
                                 .grad_weight = weight_.gradient(context),
                                 .grad_bias = bias_ ? bias_.gradient(context) : Tensor()});
  saved = {};
}

void Norm::collect(std::vector<std::shared_ptr<Parameter>>& into) const {
  into.push_back(weight_.parameter());
  if (bias_) into.push_back(bias_.parameter());
}

}  // namespace trident
