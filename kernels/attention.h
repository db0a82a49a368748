// Causal softmax attention with grouped queries, and attention over a key/value cache.
//
// Letters: B samples, S query positions and K key positions of a sample, A query heads, G key/value
// heads (A % G == 0), D elements of a query or key head, E of a value head. Activations are fp32,
// bf16 or fp16. Each function checks its arguments (Error if one does not fit), enqueues the work
// on the context's stream and returns; see kernels/backend.h. All heads of a call are local to the
// rank: nothing here communicates.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

#include "core/context.h"
#include "kernels/dropout.h"
#include "kernels/head_columns.h"

namespace trident {

struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, groups = 0, head_dim = 0;
  std::int64_t key_positions = 0;   // K; 0: as many as queries
  std::int64_t value_head_dim = 0;  // E; 0: as head_dim
  float score_factor = 1;           // of the scores, beside 1 / sqrt(D)

  std::int64_t keys() const { return key_positions > 0 ? key_positions : sequence; }
  std::int64_t value_dim() const { return value_head_dim > 0 ? value_head_dim : head_dim; }
  // The elements of a row that holds A query heads, then G key heads, then G value heads.
  std::int64_t row() const { return (heads + groups) * head_dim + groups * value_dim(); }
  std::int64_t out_row() const { return heads * value_dim(); }
  float score_scale() const { return score_factor / std::sqrt(static_cast<float>(head_dim)); }
  auto operator<=>(const AttentionShape&) const = default;
};

struct QueryKeyValue {
  HeadColumns query, key, value;
};
// The heads in the output of a fused projection (B·S, row()). K must be S.
QueryKeyValue split_qkv(const AttentionShape&, const Tensor& qkv);

// The keys that a query sees: from its own position backwards, within its window and its document.
struct AttentionMask {
  std::int64_t query_begin = 0, key_begin = 0;  // positions of a sample's first query and key
  std::int64_t window = 0;  // the most keys that a query sees, its own included; 0: no limit
  // (B, S) int64: the position at which each query's document begins. They do not decrease within a
  // sample. No tensor: a sample is one document.
  Tensor document_begins;

  std::int64_t offset() const { return query_begin - key_begin; }
};

// out = softmax(q kᵀ · score_scale(), masked) v for each head; 0 where a query sees no key. The
// kernel works by blocks with an online softmax, so its memory is linear in S (Dao 2022). The
// softmax and its statistics are fp32. Calls over parts of the keys can be merged by their
// log_sum_exp (sinks then belong to one of the calls).
struct AttentionArgs {
  AttentionShape shape{};
  QueryKeyValue in;  // rows B·S, B·K, B·K, of one dtype
  Tensor out;        // (B·S, A·E)
  // (B, A, S) fp32, of the masked scores and the sink, saved for backward; -infinity where a query
  // sees neither.
  Tensor log_sum_exp;
  AttentionMask mask;
  // (A), in's dtype: the exponential of a head's sink is added to each of its denominators
  // (gpt-oss). No tensor: no sinks.
  Tensor sinks;
  // Applies to the probabilities. Within a sample the element index is
  // ((head_offset + head) · P + query position) · P + key position, where P is dropout_positions.
  DropoutArgs dropout;                 // probability 0: no dropout
  std::int64_t head_offset = 0;        // global index of this rank's first query head
  std::int64_t dropout_positions = 0;  // in the complete sequence; 0: K
};
void attention_forward(Context&, const AttentionArgs&);

struct AttentionBackwardArgs {
  // As forward had them; for a part of the keys with out and log_sum_exp of all parts, merged.
  AttentionArgs forward;
  Tensor grad_out;     // (B·S, A·E)
  QueryKeyValue grad;  // overwritten
  Tensor grad_sinks;   // (A) fp32, added to; required if there are sinks
};
void attention_backward(Context&, const AttentionBackwardArgs&);

// Adds the attention to a part of the keys to that of the parts before: out := (out ·
// exp(log_sum_exp)
// + part · exp(part_log_sum_exp)) / the sum of both factors, and log_sum_exp := the logarithm of
// that sum. Where a query sees no key of the part nor of those before, out and log_sum_exp stay.
struct AttentionMergeArgs {
  AttentionShape shape{};   // B, S, A and E are read
  Tensor part;              // (B·S, A·E)
  Tensor part_log_sum_exp;  // (B, A, S) fp32
  Tensor out;               // (B·S, A·E) fp32
  Tensor log_sum_exp;       // (B, A, S) fp32
};
void merge_attention(Context&, const AttentionMergeArgs&);

// New positions of a text, and the cache of keys and values that they extend. Row s of sample b is
// position begin + s. P is the number of positions that the cache holds per sample, from
// cache_begin on.
struct CacheArgs {
  AttentionShape shape{};    // shape of the new positions; K is not read
  std::int64_t begin = 0;    // position of the first new row
  std::int64_t skipped = 0;  // append_to_cache leaves out these first rows of each sample; else 0
  // cache_begin <= begin + skipped, and begin + S <= cache_begin + P. For attention_cached the
  // cache holds all that the first new position sees.
  std::int64_t cache_begin = 0;
  QueryKeyValue in;  // rows B·S; append_to_cache reads keys and values, attention_cached queries
  Tensor cache;  // (B, P, G·(D + E)), in's dtype; a row holds a position's key, then value heads
  std::int64_t window = 0;  // as in AttentionMask
  Tensor sinks;             // as in AttentionArgs
};
// Copies the keys and values of the new positions into the cache.
void append_to_cache(Context&, const CacheArgs&);
// out (B·S, A·E) = the attention of each new position to the positions that it sees, which the
// cache must hold, the new ones included (append_to_cache). The kernel handles one query at a time,
// which suits small S.
void attention_cached(Context&, const CacheArgs&, const Tensor& out);

}  // namespace trident
