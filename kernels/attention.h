// Causal softmax attention with grouped queries, and rotary position embedding.
// B samples, S positions, A query heads, G key/value heads (A % G == 0), D head dimension.
#pragma once

#include <compare>
#include <cstdint>

#include "core/context.h"
#include "kernels/dropout.h"

namespace trident {

// The fused projection holds in each row the A query heads, then G key heads, then G value heads.
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, groups = 0, head_dim = 0;
  std::int64_t row() const { return (heads + 2 * groups) * head_dim; }
  auto operator<=>(const AttentionShape&) const = default;
};

// out = softmax(q kᵀ / sqrt(D), causal) v per head, by blocks with an online softmax, so memory is
// linear in S (Dao 2022). Softmax and its statistics in fp32. Dropout, where set, is applied to the
// probabilities; its element index is ((head_offset + head)·S + query)·S + key within the sample.
struct AttentionArgs {
  AttentionShape shape{};
  Tensor qkv;                    // (B·S, (A + 2G)·D) fp32 or bf16
  Tensor out;                    // (B·S, A·D)
  Tensor log_sum_exp;            // (B, A, S) fp32, saved for backward
  DropoutArgs dropout;           // probability 0: none
  std::int64_t head_offset = 0;  // global index of the first query head here
};
void attention_forward(Context&, const AttentionArgs&);

// Keys and values of text that goes on: row s of sample b is position begin + s.
struct CacheArgs {
  AttentionShape shape{};  // of the new positions
  std::int64_t begin = 0;  // positions before them; begin + S <= P
  Tensor qkv;              // (B·S, (A + 2G)·D)
  Tensor cache;  // (B, P, 2·G·D), of qkv's type: a position's key heads, then value heads
};
// The new positions' go into the cache.
void append_to_cache(Context&, const CacheArgs&);
// out (B·S, A·D) = the attention of the new positions to all until them, which the cache has.
// Queries are taken one by one, as is good for few of them.
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

// RoPE (Su 2021) in the half-split form of Llama in transformers: rotates query and key heads of
// qkv in place, angle position · base^(-2i/D) for the pair (i, i + D/2); `inverse` rotates back,
// which is the gradient.
struct RotaryArgs {
  AttentionShape shape{};
  Tensor qkv;
  float base = 10000.0f;
  bool inverse = false;
  std::int64_t begin = 0;      // the position of each sample's first row
  std::int64_t positions = 0;  // whose angles are kept for the next call, begin + S at least; 0: S

  std::int64_t tabulated() const { return positions > 0 ? positions : shape.sequence; }
};
void rotary(Context&, const RotaryArgs&);

}  // namespace trident
