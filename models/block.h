// One transformer layer, pre-norm: h = x + drop(attention(norm(x))), y = h + drop(mlp(norm(h))).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/attention.h"
#include "models/mlp.h"
#include "models/module.h"
#include "models/norm.h"

namespace trident {

class Block final : public Module {
 public:
  Block(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  // drop(x) + residual, or drop(x) without a residual, with the mask of `key`.
  Tensor dropout(Context&, const MicroBatch&, std::uint64_t key, const Tensor& x,
                 const Tensor& residual) const;

  ParallelContext parallel_;
  float dropout_;
  std::uint64_t attention_key_, mlp_key_;
  Norm attention_norm_, mlp_norm_;
  Attention attention_;
  Mlp mlp_;
};

}  // namespace trident
