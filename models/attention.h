// Causal self-attention with grouped queries, sharded by heads over the ranks that share a layer: a
// sublayer of Block. Collective over these ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/rotary.h"
#include "models/head_norm.h"
#include "models/module.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class Attention final : public Module {
 public:
  // Makes the parameters NAME.qkv (query, key, value heads stacked) and NAME.output, with
  // TransformerShape::qk_norm also NAME.q_norm and NAME.k_norm, with sinks NAME.sinks (A).
  // `window`: as in AttentionMask.
  Attention(const ParallelContext&, const TransformerShape&, const std::string& name,
            std::int64_t window);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  struct Saved;
  struct Norms {
    std::unique_ptr<HeadsNorm> query, key;
  };
  // Makes the queries and keys that the scores are computed from: norms, then rotary positions.
  void prepare(Context&, const MicroBatch&, Saved&) const;
  void prepare_backward(Context&, const MicroBatch&, Saved&, const Tensor& grad_qkv) const;
  AttentionArgs core_args(const MicroBatch&, const Saved&) const;
  // Fills out and log_sum_exp.
  void core(Context&, const MicroBatch&, Saved&) const;
  // As core(), with the batch's key-value cache: appends the new keys and values, and attends to
  // the cached positions if the batch continues texts.
  void cached_core(Context&, const MicroBatch&, Saved&) const;
  void append(Context&, CacheArgs&, KeyValueCache::Layer&, std::int64_t positions) const;
  AttentionShape shape_of(const MicroBatch&) const;
  // Queries, keys and values in `qk`, the operands after norms, and `qkv`, the projection's output.
  QueryKeyValue operands(const Tensor& qk, const Tensor& qkv) const;
  DropoutArgs dropout_of(const MicroBatch&) const;

  std::int64_t heads_, groups_, head_dim_;  // on this rank
  std::int64_t head_offset_;
  std::int64_t window_;
  float dropout_;
  std::uint64_t dropout_key_;
  bool recompute_core_;
  bool rotary_;
  RotaryFrequencies frequencies_;
  ContextAttention context_;
  Linear projection_, output_;
  std::optional<Norms> norms_;
  Weight sinks_;
};

}  // namespace trident
