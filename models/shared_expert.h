// The expert that every token of a mixture takes (DeepSeekMoE, Dai 2024), an Mlp whose output may
// be multiplied by the sigmoid of one linear unit (Qwen2-MoE). Its passes have two halves, between
// which Experts lets its exchanges run. Collective over the ranks that share the layer.
//
// Letters as in models/experts.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/mlp.h"
#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class SharedExpert {
 public:
  struct Saved {
    SavedActivationsPtr mlp;
    LinearActivations gate;
    Tensor output, gates;  // (T or T/t, H), (T or T/t, 1), with a gate
    Tensor between;        // the result of one step, for the next
  };

  // Makes the parameters of an Mlp, NAME.shared, and with a gate NAME.shared_gate.weight (1, H).
  SharedExpert(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const;

  // The halves of the pass with x (T or T/t, H); then y += the output.
  void begin_forward(Context&, const MicroBatch&, const Tensor& x, Saved&) const;
  void end_forward(Context&, const MicroBatch&, const Tensor& x, Saved&) const;
  void add_output(Context&, const Tensor& y, Saved&) const;
  // The halves of the pass with grad_y (T or T/t, H); then grad_x += the gradient of x.
  void begin_backward(Context&, const MicroBatch&, const Tensor& grad_y, Saved&) const;
  void end_backward(Context&, const MicroBatch&, Saved&) const;
  void add_gradient(Context&, const Tensor& grad_x, Saved&) const;
  void backward_weight(Context&, const MicroBatch&, Saved&) const;

 private:
  Mlp mlp_;
  std::unique_ptr<Linear> gate_;
};

}  // namespace trident
