// Causal softmax attention with grouped queries, attention over a key/value cache, and rotary
// position embedding.
//
// Letters: B samples, S positions, A query heads, G key/value heads (A % G == 0), D head dimension.
// Activations are fp32, bf16 or fp16. Each function checks its arguments (Error if one does not
// fit), enqueues the work on the context's stream and returns; see kernels/backend.h. All heads of
// a call are local to the rank: nothing here communicates.
#pragma once

#include <compare>
#include <cstdint>

#include "core/context.h"
#include "kernels/dropout.h"

namespace trident {

// The shape of a fused query/key/value projection. Each row holds A query heads, then G key heads,
// then G value heads.
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, groups = 0, head_dim = 0;
  std::int64_t row() const { return (heads + 2 * groups) * head_dim; }
  auto operator<=>(const AttentionShape&) const = default;
};

// out = softmax(q kᵀ / sqrt(D), causal) v for each head. The kernel works by blocks with an online
// softmax, so its memory is linear in S (Dao 2022). The softmax and its statistics are fp32.
// Dropout, if set, applies to the probabilities. Within a sample the element index is
// ((head_offset + head)·S + query)·S + key.
struct AttentionArgs {
  AttentionShape shape{};
  Tensor qkv;                    // (B·S, (A + 2G)·D)
  Tensor out;                    // (B·S, A·D)
  Tensor log_sum_exp;            // (B, A, S) fp32, saved for backward
  DropoutArgs dropout;           // probability 0: no dropout
  std::int64_t head_offset = 0;  // global index of this rank's first query head
};
void attention_forward(Context&, const AttentionArgs&);

// New positions of a text, and the cache of keys and values that they extend. Row s of sample b is
// position begin + s. P is the number of positions that the cache holds per sample.
struct CacheArgs {
  AttentionShape shape{};  // shape of the new positions
  std::int64_t begin = 0;  // number of earlier positions; begin + S <= P
  Tensor qkv;              // (B·S, (A + 2G)·D)
  Tensor cache;  // (B, P, 2·G·D), qkv's dtype; a row holds a position's key, then value heads
};
// Copies the keys and values of the new positions into the cache.
void append_to_cache(Context&, const CacheArgs&);
// out (B·S, A·D) = the attention of each new position to all positions up to itself. The cache must
// already hold the new positions (append_to_cache). The kernel handles one query at a time, which
// suits small S.
void attention_cached(Context&, const CacheArgs&, const Tensor& out);

struct AttentionBackwardArgs {
  AttentionShape shape{};
  Tensor qkv, out, log_sum_exp;  // as in forward
  Tensor grad_out;               // (B·S, A·D)
  Tensor grad_qkv;               // (B·S, (A + 2G)·D), overwritten
  DropoutArgs dropout;
  std::int64_t head_offset = 0;
};
void attention_backward(Context&, const AttentionBackwardArgs&);

}  // namespace trident
