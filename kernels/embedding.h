// Token embedding over a slice of the vocabulary, and learned position embedding.
//
// Letters: T tokens, V' rows of the vocabulary on this rank, H columns, P positions. Each function
// checks its arguments (Error if one does not fit), enqueues the work on the context's stream and
// returns; see kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// out[t] = table[ids[t] - begin] if begin <= ids[t] < begin + V', else 0.
struct EmbeddingArgs {
  Tensor ids;    // (T) i32
  Tensor table;  // (V', H) fp32, bf16 or fp16: rows begin … begin + V' of the vocabulary
  Tensor out;    // (T, H)
  std::int64_t begin = 0;
};
void embedding_forward(Context&, const EmbeddingArgs&);

// grad_table[ids[t] - begin] += grad_out[t]. The rows of each id are added in ascending t, so the
// result is deterministic. The id `padding` gets no gradient (torch.nn.Embedding's padding_idx).
struct EmbeddingBackwardArgs {
  Tensor ids, grad_out;  // (T) i32, (T, H)
  Tensor grad_table;     // (V', H) fp32, bf16 or fp16
  std::int64_t begin = 0;
  std::int64_t padding = -1;  // index in the full vocabulary; -1: none
};
void embedding_backward(Context&, const EmbeddingBackwardArgs&);

// x[t] += table[begin + (first_row + t) % sequence]. table has P >= begin + sequence rows.
struct PositionArgs {
  Tensor x, table;  // (T, H), (P, H)
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t begin = 0;  // position of each sample's first row
};
void position_forward(Context&, const PositionArgs&);
// grad_table[(first_row + t) % sequence] += grad_x[t] in ascending t. grad_table (P, H) is fp32,
// bf16 or fp16.
struct PositionBackwardArgs {
  Tensor grad_x, grad_table;
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
};
void position_backward(Context&, const PositionBackwardArgs&);

}  // namespace trident
