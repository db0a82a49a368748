// Causal self-attention with grouped queries, cut by heads over the tensor group.
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
  // Parameters NAME.qkv (query, key, value heads stacked) and NAME.output.
  Attention(const TensorParallel&, const TransformerShape&, const std::string& name);
  // x (T or T/t, H) → (T or T/t, H), dropout and residual not included.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, AttentionActivations&) const;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        AttentionActivations&) const;
  void backward_weight(Context&, AttentionActivations&) const;  // frees the record
  void collect(std::vector<std::shared_ptr<Parameter>>& into) const;

 private:
  // Fills out and log_sum_exp from qkv.
  void core(Context&, const MicroBatch&, AttentionActivations&) const;
  // The same for a text that is kept in the batch's cache, where it may go on.
  void cached_core(Context&, const MicroBatch&, AttentionActivations&) const;
  AttentionShape shape_of(const MicroBatch&) const;
  DropoutArgs dropout_of(const MicroBatch&) const;

  std::int64_t heads_, groups_, head_dim_;  // of this rank
  std::int64_t head_offset_;
  float dropout_;
  std::uint64_t dropout_key_;
  bool recompute_core_;
  bool rotary_;
  float rotary_base_;
  std::vector<std::shared_ptr<Parameter>> parameters_;
  ColumnParallelLinear projection_;
  RowParallelLinear output_;
};

}  // namespace trident
