// The feed-forward part of a layer: GELU (GPT-2) or SwiGLU (Llama), sharded over the
// tensor-parallel group. A part of Block. Collective over that group.
#pragma once

#include <string>
#include <vector>

#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

struct MlpActivations {
  LinearActivations up, down;
  Tensor pre_activation;
};

class Mlp {
 public:
  // Makes the parameters NAME.up (for SwiGLU gate and up stacked) and NAME.down.
  Mlp(const ParallelContext&, const TransformerShape&, const std::string& name);
  Tensor forward(Context&, WeightVersion, const Tensor& x, MlpActivations&) const;
  Tensor backward_input(Context&, WeightVersion, const Tensor& grad_y, MlpActivations&) const;
  void backward_weight(Context&, MlpActivations&) const;  // frees the saved activations
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;

 private:
  bool swiglu_;
  std::int64_t ffn_;  // on this rank
  Linear up_, down_;
};

}  // namespace trident
