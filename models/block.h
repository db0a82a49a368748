// One transformer layer, pre-norm: h = x + drop(mixer(norm(x))), y = h +
// drop(feed_forward(norm(h))). The mixer lets positions see each other (models/attention.h); the
// feed-forward sublayer handles each position alone (models/mlp.h). A family builds both
// (Architecture::mixer, feed_forward).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/module.h"
#include "models/norm.h"
#include "models/transformer.h"

namespace trident {

class Block final : public Module {
 public:
  // Norms and dropout are named after NAME.attention and NAME.mlp, whatever the sublayers are.
  Block(const ParallelContext&, const TransformerShape&, const std::string& name,
        std::unique_ptr<Module> mixer, std::unique_ptr<Module> feed_forward);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  std::vector<std::shared_ptr<Parameter>> backward_parameters() const override;
  std::vector<std::shared_ptr<Parameter>> forward_gradients() const override;
  std::vector<std::shared_ptr<Parameter>> buffers() const override;
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  // The norms' parameters and, of each sublayer, those that `of` returns, in forward's order.
  std::vector<std::shared_ptr<Parameter>> with_norms(
      std::vector<std::shared_ptr<Parameter>> (Module::*of)() const) const;
  // drop(x) + residual, or drop(x) without a residual, with the mask of `key`.
  Tensor dropout(Context&, const MicroBatch&, std::uint64_t key, const Tensor& x,
                 const Tensor& residual) const;

  ParallelContext parallel_;
  float dropout_;
  std::uint64_t mixer_key_, feed_forward_key_;
  Norm mixer_norm_, feed_forward_norm_;
  std::unique_ptr<Module> mixer_, feed_forward_;
};

}  // namespace trident
