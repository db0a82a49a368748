// Causal self-attention with grouped queries, sharded by heads over the ranks that share a layer: a
// sublayer of Block. Collective over these ranks.
#pragma once

#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class Attention final : public Module {
 public:
  // Makes the parameters NAME.qkv (query, key, value heads stacked) and NAME.output.
  Attention(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  struct Saved;
  // Fills out and log_sum_exp from qkv.
  void core(Context&, const MicroBatch&, Saved&) const;
  // As core(), with the batch's key-value cache: appends the new keys and values, and attends to
  // the cached positions if the batch continues texts.
  void cached_core(Context&, const MicroBatch&, Saved&) const;
  AttentionShape shape_of(const MicroBatch&) const;
  DropoutArgs dropout_of(const MicroBatch&) const;

  std::int64_t heads_, groups_, head_dim_;  // on this rank
  std::int64_t head_offset_;
  float dropout_;
  std::uint64_t dropout_key_;
  bool recompute_core_;
  bool rotary_;
  float rotary_base_;
  Linear projection_, output_;
};

}  // namespace trident
