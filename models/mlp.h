// The feed-forward sublayer of Block: GELU (GPT-2) or SwiGLU (Llama), sharded over the ranks that
// share a layer. Collective over these ranks.
#pragma once

#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class Mlp final : public Module {
 public:
  // Makes the parameters NAME.up (for SwiGLU gate and up stacked) and NAME.down.
  Mlp(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

  // The halves of forward and backward_input: x → activation (T, F/t) → y, and grad_y → gradient of
  // the up-projection's output → gradient of x.
  Tensor forward_up(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const;
  Tensor forward_down(Context&, const MicroBatch&, const Tensor& activation,
                      SavedActivationsPtr&) const;
  Tensor backward_down(Context&, const MicroBatch&, const Tensor& grad_y,
                       SavedActivationsPtr&) const;
  Tensor backward_up(Context&, const MicroBatch&, const Tensor& grad_up,
                     SavedActivationsPtr&) const;

 private:
  struct Saved;
  bool swiglu_;
  std::int64_t ffn_;  // on this rank
  Linear up_, down_;
};

}  // namespace trident
