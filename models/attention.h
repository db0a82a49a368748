// Causal self-attention with grouped queries, sharded by heads over the tensor-parallel group. A
// part of Block. Collective over that group.
#pragma once

#include <string>
#include <vector>

#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

struct AttentionActivations {
  LinearActivations projection, output;
  Tensor qkv, out, log_sum_exp;
};

class Attention {
 public:
  // Makes the parameters NAME.qkv (query, key, value heads stacked) and NAME.output.
  Attention(const ParallelContext&, const TransformerShape&, const std::string& name);
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, AttentionActivations&) const;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        AttentionActivations&) const;
  void backward_weight(Context&, AttentionActivations&) const;  // frees the saved activations
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;

 private:
  // Fills out and log_sum_exp from qkv.
  void core(Context&, const MicroBatch&, AttentionActivations&) const;
  // As core(), with the batch's key-value cache: appends the new keys and values, and attends to
  // the cached positions if the batch continues texts.
  void cached_core(Context&, const MicroBatch&, AttentionActivations&) const;
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
