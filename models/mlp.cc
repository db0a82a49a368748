#include "models/mlp.h"

#include "kernels/activation.h"

namespace trident {
namespace {

std::vector<std::int64_t> up_blocks(const TransformerShape& shape) {
  return shape.swiglu ? std::vector{shape.ffn, shape.ffn} : std::vector{shape.ffn};
}

}  // namespace

Mlp::Mlp(const ParallelContext& parallel, const TransformerShape& shape, const std::string& name)
    : swiglu_(shape.swiglu),
      ffn_(parallel.own(shape.ffn).count),
      up_(parallel.linear({.name = name + ".up",
                           .role = LinearRole::column,
                           .in = shape.hidden,
                           .out = up_blocks(shape),
                           .bias = shape.biases,
                           .init_deviation = shape.init_deviation})),
      down_(parallel.linear({.name = name + ".down",
                             .role = LinearRole::row,
                             .in = shape.ffn,
                             .out = {shape.hidden},
                             .bias = shape.biases,
                             .init_deviation = shape.output_deviation()})) {}

Tensor Mlp::forward(Context& context, WeightVersion version, const Tensor& x,
                    MlpActivations& saved) const {
  if (!swiglu_) {
    return down_.forward(context, version,
                         up_.forward_gelu(context, version, x, saved.up, saved.pre_activation),
                         saved.down);
  }
  saved.pre_activation = up_.forward(context, version, x, saved.up);
  Tensor y = context.empty({saved.pre_activation.dim(0), ffn_}, x.dtype(), Category::activation);
  swiglu_forward(context, saved.pre_activation, y);
  return down_.forward(context, version, y, saved.down);
}

Tensor Mlp::backward_input(Context& context, WeightVersion version, const Tensor& grad_y,
                           MlpActivations& saved) const {
  Tensor grad_up;
  if (swiglu_) {
    const Tensor grad_activation = down_.backward_input(context, version, grad_y, saved.down);
    grad_up = context.empty(saved.pre_activation.shape(), grad_y.dtype(), Category::activation);
    swiglu_backward(context, saved.pre_activation, grad_activation, grad_up);
  } else {
    grad_up = down_.backward_input(context, version, grad_y, saved.down, saved.pre_activation);
  }
  saved.pre_activation = Tensor();
  return up_.backward_input(context, version, grad_up, saved.up);
}

void Mlp::backward_weight(Context& context, MlpActivations& saved) const {
  down_.backward_weight(context, saved.down);
  up_.backward_weight(context, saved.up);
}

void Mlp::collect(std::vector<std::shared_ptr<Parameter>>& into) const {
  up_.collect(into);
  down_.collect(into);
}

}  // namespace trident
