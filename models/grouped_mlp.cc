#include "models/grouped_mlp.h"

#include <utility>

#include "kernels/experts.h"
#include "kernels/grouped_bias.h"
#include "kernels/grouped_gemm.h"

namespace trident {
namespace {

Weight parameter(std::string name, Placement placement, float deviation, ParameterRole role) {
  return Weight(std::make_shared<Parameter>(ParameterSpec{.name = std::move(name),
                                                          .placement = std::move(placement),
                                                          .initial = Initial::normal(deviation),
                                                          .role = role}));
}

// The blocks of the columns of gates and up values, which ranks split.
std::vector<std::int64_t> unit_blocks(const ExpertsShape& shape) {
  if (shape.unit.interleaved) return {2 * shape.ffn};
  return {shape.ffn, shape.ffn};
}

// The up- or the down-projections, sharded along the experts' width.
Weight matrices(const ParallelContext& parallel, const TransformerShape& shape,
                const std::string& name, float deviation, bool up) {
  const ExpertsShape& experts = shape.experts;
  const std::int64_t width = up ? 2 * experts.ffn : experts.ffn;
  const std::int64_t in = up ? shape.hidden : width, out = up ? width : shape.hidden;
  const Shape global = experts.input_first ? Shape{experts.router.experts, in, out}
                                           : Shape{experts.router.experts, out, in};
  const int sharded = up == experts.input_first ? 2 : 1;
  const auto blocks = up ? unit_blocks(experts) : std::vector<std::int64_t>{experts.ffn};
  return parameter(name, parallel.experts(global, sharded, blocks), deviation,
                   ParameterRole::matrix);
}

}  // namespace

GroupedMlp::GroupedMlp(const ParallelContext& parallel, const TransformerShape& shape,
                       const std::string& name)
    : input_first_(shape.experts.input_first),
      unit_(shape.experts.unit),
      up_(matrices(parallel, shape, name + ".up", shape.init_deviation, true)),
      down_(matrices(parallel, shape, name + ".down", shape.output_deviation(), false)) {
  const ExpertsShape& experts = shape.experts;
  if (experts.biases) {
    const std::int64_t count = experts.router.experts;
    up_bias_ = parameter(name + ".up_bias",
                         parallel.experts({count, 2 * experts.ffn}, 1, unit_blocks(experts)), 0,
                         ParameterRole::vector);
    Placement placement = parallel.experts({count, shape.hidden});
    if (parallel.ranks_of_expert() > 1) placement.partial.push_back(Group::expert_tensor);
    down_bias_ = parameter(name + ".down_bias", std::move(placement), 0, ParameterRole::vector);
  }
  adds_down_bias_ = down_bias_ && parallel.exchange_rank() % parallel.ranks_of_expert() == 0;
}

std::vector<std::shared_ptr<Parameter>> GroupedMlp::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list;
  for (const Weight* weight : {&up_, &up_bias_, &down_, &down_bias_}) {
    if (*weight) list.push_back(weight->parameter());
  }
  return list;
}

void GroupedMlp::multiply(Context& context, const MicroBatch& batch, const Weight& weight,
                          const Tensor& x, const Tensor& y, const Saved& saved) const {
  grouped_gemm(context, {.a = x,
                         .b = weight.acquire(batch.version).tensor(),
                         .c = y,
                         .ends = saved.ends,
                         .transpose_b = !input_first_});
}

void GroupedMlp::multiply_gradient(Context& context, const MicroBatch& batch, const Weight& weight,
                                   const Tensor& grad_y, const Tensor& grad_x,
                                   const Saved& saved) const {
  grouped_gemm(context, {.a = grad_y,
                         .b = weight.acquire(batch.version).tensor(),
                         .c = grad_x,
                         .ends = saved.ends,
                         .transpose_b = input_first_});
}

void GroupedMlp::add_gradient(Context& context, const Weight& weight, const Tensor& grad_y,
                              const Tensor& x, const Saved& saved) const {
  weight.add_grouped_product(context, input_first_ ? x : grad_y, input_first_ ? grad_y : x,
                             saved.ends);
}

Tensor GroupedMlp::forward_up(Context& context, const MicroBatch& batch, const Tensor& x,
                              Saved& saved) const {
  const std::int64_t rows = x.dim(0), ffn = down_.dim(input_first_ ? 1 : 2);
  saved.pre_activation = context.empty({rows, 2 * ffn}, x.dtype(), Category::activation);
  multiply(context, batch, up_, x, saved.pre_activation, saved);
  if (up_bias_) {
    grouped_bias(context, {.bias = up_bias_.acquire(batch.version).tensor(),
                           .ends = saved.ends,
                           .x = saved.pre_activation});
  }
  Tensor activation = context.empty({rows, ffn}, x.dtype(), Category::activation);
  expert_activation(
      context,
      {.x = saved.pre_activation, .weights = saved.row_weights, .y = activation, .unit = unit_});
  return activation;
}

Tensor GroupedMlp::forward_down(Context& context, const MicroBatch& batch, const Tensor& activation,
                                const Saved& saved) const {
  const std::int64_t hidden = down_.dim(input_first_ ? 2 : 1);
  Tensor y = context.empty({activation.dim(0), hidden}, activation.dtype(), Category::activation);
  multiply(context, batch, down_, activation, y, saved);
  if (adds_down_bias_) {
    grouped_bias(context, {.bias = down_bias_.acquire(batch.version).tensor(),
                           .weights = saved.row_weights,
                           .ends = saved.ends,
                           .x = y});
  }
  return y;
}

Tensor GroupedMlp::backward_down(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                 Saved& saved) const {
  const std::int64_t rows = grad_y.dim(0);
  saved.gradient = grad_y;
  saved.activation =
      context.empty({rows, saved.pre_activation.dim(1) / 2}, grad_y.dtype(), Category::activation);
  multiply_gradient(context, batch, down_, grad_y, saved.activation, saved);
  Tensor grad_row_weights = context.empty({rows}, DType::f32, Category::activation);
  expert_activation_backward(context, {.x = saved.pre_activation,
                                       .weights = saved.row_weights,
                                       .grad_y = saved.activation,
                                       .grad_x = saved.pre_activation,
                                       .grad_weights = grad_row_weights,
                                       .y = saved.activation,
                                       .unit = unit_});
  if (adds_down_bias_) {
    grouped_bias_backward(context, {.bias = down_bias_.acquire(batch.version).tensor(),
                                    .ends = saved.ends,
                                    .grad = grad_y,
                                    .grad_weights = grad_row_weights});
  }
  return grad_row_weights;
}

Tensor GroupedMlp::backward_up(Context& context, const MicroBatch& batch,
                               const Saved& saved) const {
  const Tensor& gradient = saved.gradient;
  Tensor grad_x = context.empty(gradient.shape(), gradient.dtype(), Category::activation);
  multiply_gradient(context, batch, up_, saved.pre_activation, grad_x, saved);
  return grad_x;
}

void GroupedMlp::release(Saved& saved) const {
  if (!adds_down_bias_) saved.row_weights = Tensor();
}

void GroupedMlp::backward_weight_down(Context& context, const Saved& saved) const {
  add_gradient(context, down_, saved.gradient, saved.activation, saved);
  if (adds_down_bias_) {
    grouped_bias_backward(context, {.weights = saved.row_weights,
                                    .ends = saved.ends,
                                    .grad = saved.gradient,
                                    .grad_bias = down_bias_.gradient(context)});
  }
}

void GroupedMlp::backward_weight_up(Context& context, const Tensor& x, const Saved& saved) const {
  add_gradient(context, up_, saved.pre_activation, x, saved);
  if (up_bias_) {
    grouped_bias_backward(context, {.ends = saved.ends,
                                    .grad = saved.pre_activation,
                                    .grad_bias = up_bias_.gradient(context)});
  }
}

}  // namespace trident
