// Multi-head latent attention (DeepSeek-V2, Liu 2024), a sublayer of Block: the keys and values of
// all heads are projections of one short vector a position, the latent. Keys have a rotary part
// beside it that all heads share, so a text's cache holds the latent and that part alone. Sharded
// by heads over the ranks that share a layer; collective over these.
//
// Letters as in kernels/attention.h; D = N + R elements of a query or key head, N without positions
// and R rotary ones, and E of a value head. L is the size of the latent, Q that of the queries'.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/heads.h"
#include "kernels/rotary.h"
#include "models/module.h"
#include "models/norm.h"
#include "models/transformer.h"
#include "parallel/tensor/linear.h"

namespace trident {

class LatentAttention final : public Module {
 public:
  // Makes the parameters NAME.kv_down (L + R, H): the latent, then the rotary part of the keys;
  // NAME.kv_latent_norm (L); NAME.kv_up (A·(N + E), L): of each head the key's plain part, then the
  // value; NAME.output. The queries are NAME.q (A·(N + R), H), or with their own latent NAME.q_down
  // (Q, H), NAME.q_latent_norm (Q) and NAME.q_up (A·(N + R), Q).
  LatentAttention(const ParallelContext&, const TransformerShape&, const std::string& name);
  std::vector<std::shared_ptr<Parameter>> parameters() const override;
  // x (T or T/t, H) → (T or T/t, H), without dropout and residual.
  Tensor forward(Context&, const MicroBatch&, const Tensor& x, SavedActivationsPtr&) const override;
  Tensor backward_input(Context&, const MicroBatch&, const Tensor& grad_y,
                        SavedActivationsPtr&) const override;
  void backward_weight(Context&, const MicroBatch&, SavedActivationsPtr&) const override;

 private:
  struct Saved;
  // The queries' projection from their latent.
  struct QueryLatent {
    Linear down;
    Norm norm;
  };
  // Keys (T, A·D) and values (T, A·E) of all positions of `latents`.
  struct KeysAndValues {
    Tensor keys, values;
  };

  Tensor queries(Context&, const MicroBatch&, const Tensor& x, Saved&) const;
  // The normed latents (T or T/t, L), and the rotary part of the keys (T, R), before rotation.
  Tensor latents(Context&, const MicroBatch&, const Tensor& x, Saved&, Tensor& rotary_keys) const;
  KeysAndValues spread(Context&, const Tensor& projected, const Tensor& rotary_keys) const;
  void rotate(Context&, const MicroBatch&, const HeadParts&, std::int64_t heads,
              bool inverse) const;
  // Adds the new positions to the layer's cache, and returns the keys and values of all.
  KeysAndValues cached(Context&, const MicroBatch&, const Tensor& latents,
                       const Tensor& rotary_keys) const;
  AttentionArgs core_args(const MicroBatch&, const Saved&) const;
  void core(Context&, const MicroBatch&, Saved&) const;
  Tensor backward_keys(Context&, const MicroBatch&, const KeysAndValues& grad, Saved&) const;

  ParallelContext parallel_;
  LatentShape shape_;
  std::int64_t heads_, head_offset_;  // on this rank
  float dropout_;
  std::uint64_t dropout_key_;
  bool recompute_core_;
  RotaryFrequencies frequencies_;
  ContextAttention context_;
  std::optional<QueryLatent> query_latent_;
  Linear query_;  // from the latent, or from x
  Linear down_;
  Norm norm_;
  Linear up_, output_;
};

}  // namespace trident
