#include "models/shared_expert.h"

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/experts.h"

namespace trident {
namespace {

TransformerShape of_shared(TransformerShape shape) {
  shape.ffn = shape.experts.shared_ffn;
  shape.swiglu = true;
  return shape;
}

}  // namespace

SharedExpert::SharedExpert(const ParallelContext& parallel, const TransformerShape& shape,
                           const std::string& name)
    : mlp_(parallel, of_shared(shape), name + ".shared") {
  if (!shape.experts.shared_gate) return;
  gate_ = std::make_unique<Linear>(parallel.linear({.name = name + ".shared_gate",
                                                    .role = LinearRole::replicated,
                                                    .in = shape.hidden,
                                                    .out = {1},
                                                    .init_deviation = shape.init_deviation}));
}

std::vector<std::shared_ptr<Parameter>> SharedExpert::parameters() const {
  std::vector<std::shared_ptr<Parameter>> list = mlp_.parameters();
  if (gate_) gate_->collect(list);
  return list;
}

void SharedExpert::begin_forward(Context& context, const MicroBatch& batch, const Tensor& x,
                                 Saved& saved) const {
  saved.between = mlp_.forward_up(context, batch, x, saved.mlp);
}

void SharedExpert::end_forward(Context& context, const MicroBatch& batch, const Tensor& x,
                               Saved& saved) const {
  saved.output = mlp_.forward_down(context, batch, std::exchange(saved.between, {}), saved.mlp);
  if (gate_) saved.gates = gate_->forward(context, batch.version, x, saved.gate);
}

void SharedExpert::add_output(Context& context, const Tensor& y, Saved& saved) const {
  if (!gate_) return add(context, std::exchange(saved.output, {}), y);
  gate_rows(context, {.x = saved.output, .gates = saved.gates, .y = y});
}

void SharedExpert::begin_backward(Context& context, const MicroBatch& batch, const Tensor& grad_y,
                                  Saved& saved) const {
  Tensor grad_output = grad_y;
  if (gate_) {
    grad_output = std::exchange(saved.output, {});
    gate_rows_backward(context, {.x = grad_output,
                                 .gates = saved.gates,
                                 .grad_y = grad_y,
                                 .grad_x = grad_output,
                                 .grad_gates = saved.gates});
  }
  saved.between = mlp_.backward_down(context, batch, grad_output, saved.mlp);
}

void SharedExpert::end_backward(Context& context, const MicroBatch& batch, Saved& saved) const {
  if (gate_) {
    saved.output =
        gate_->backward_input(context, batch.version, std::exchange(saved.gates, {}), saved.gate);
  }
  saved.between = mlp_.backward_up(context, batch, std::exchange(saved.between, {}), saved.mlp);
}

void SharedExpert::add_gradient(Context& context, const Tensor& grad_x, Saved& saved) const {
  if (gate_) add(context, std::exchange(saved.output, {}), grad_x);
  add(context, std::exchange(saved.between, {}), grad_x);
}

void SharedExpert::backward_weight(Context& context, const MicroBatch& batch, Saved& saved) const {
  mlp_.backward_weight(context, batch, saved.mlp);
  if (gate_) gate_->backward_weight(context, saved.gate);
}

}  // namespace trident
