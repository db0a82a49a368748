#include "models/mlp.h"

#include "kernels/activation.h"

namespace trident {
namespace {

std::vector<std::int64_t> up_blocks(const TransformerShape& shape) {
  return shape.swiglu ? std::vector{shape.ffn, shape.ffn} : std::vector{shape.ffn};
}

}  // namespace

struct Mlp::Saved final : SavedActivations {
  LinearActivations up, down;
  Tensor pre_activation;
};

Mlp::Mlp(const ParallelContext& parallel, const TransformerShape& shape, const std::string& name)
    : swiglu_(shape.swiglu),
      ffn_(parallel.own(shape.ffn).count),
      up_(parallel.linear({.name = name + ".up",
                           .role = LinearRole::column,
                           .in = shape.hidden,
                           .out = up_blocks(shape),
                           .bias = shape.mlp_bias,
                           .init_deviation = shape.init_deviation})),
      down_(parallel.linear({.name = name + ".down",
                             .role = LinearRole::row,
                             .in = shape.ffn,
                             .out = {shape.hidden},
                             .bias = shape.mlp_bias,
                             .init_deviation = shape.output_deviation()})) {}

Tensor Mlp::forward(Context& context, const MicroBatch& batch, const Tensor& x,
                    SavedActivationsPtr& kept) const {
  return forward_down(context, batch, forward_up(context, batch, x, kept), kept);
}

Tensor Mlp::forward_up(Context& context, const MicroBatch& batch, const Tensor& x,
                       SavedActivationsPtr& kept) const {
  const WeightVersion version = batch.version;
  auto owned = std::make_unique<Saved>();
  Saved& saved = *owned;
  kept = std::move(owned);
  if (!swiglu_) return up_.forward_gelu(context, version, x, saved.up, saved.pre_activation);
  saved.pre_activation = up_.forward(context, version, x, saved.up);
  Tensor y = context.empty({saved.pre_activation.dim(0), ffn_}, x.dtype(), Category::activation);
  swiglu_forward(context, saved.pre_activation, y);
  return y;
}

Tensor Mlp::forward_down(Context& context, const MicroBatch& batch, const Tensor& activation,
                         SavedActivationsPtr& kept) const {
  return down_.forward(context, batch.version, activation, static_cast<Saved&>(*kept).down);
}

Tensor Mlp::backward_input(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                           SavedActivationsPtr& kept) const {
  return backward_up(context, batch, backward_down(context, batch, grad_y, kept), kept);
}

Tensor Mlp::backward_down(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                          SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  Tensor grad_up;
  if (swiglu_) {
    const Tensor grad_activation = down_.backward_input(context, batch.version, grad_y, saved.down);
    grad_up = context.empty(saved.pre_activation.shape(), grad_y.dtype(), Category::activation);
    swiglu_backward(context, saved.pre_activation, grad_activation, grad_up);
  } else {
    grad_up =
        down_.backward_input(context, batch.version, grad_y, saved.down, saved.pre_activation);
  }
  saved.pre_activation = Tensor();
  return grad_up;
}

Tensor Mlp::backward_up(Context& context, const MicroBatch& batch, const Tensor& grad_up,
                        SavedActivationsPtr& kept) const {
  return up_.backward_input(context, batch.version, grad_up, static_cast<Saved&>(*kept).up);
}

void Mlp::backward_weight(Context& context, const MicroBatch&, SavedActivationsPtr& kept) const {
  auto& saved = static_cast<Saved&>(*kept);
  down_.backward_weight(context, saved.down);
  up_.backward_weight(context, saved.up);
  kept.reset();
}

std::vector<std::shared_ptr<Parameter>> Mlp::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  up_.collect(list);
  down_.collect(list);
  return list;
}

}  // namespace trident
