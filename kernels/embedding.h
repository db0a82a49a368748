// Token and position embedding over a slice of the vocabulary.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// out[t] = table[ids[t] - begin] where begin <= ids[t] < begin + table rows, else 0.
struct EmbeddingArgs {
  Tensor ids;    // (T) i32
  Tensor table;  // (V', H) fp32 or bf16: rows begin … begin + V' of the vocabulary
  Tensor out;    // (T, H)
  std::int64_t begin = 0;
};
void embedding_forward(Context&, const EmbeddingArgs&);

// grad_table[ids[t] - begin] += grad_out[t], rows in ascending t for each id (deterministic), but
// for ids[t] = padding, whose row gets nothing (torch.nn.Embedding's padding_idx).
struct EmbeddingBackwardArgs {
  Tensor ids, grad_out;  // (T) i32, (T, H)
  Tensor grad_table;     // (V', H) fp32
  std::int64_t begin = 0;
  std::int64_t padding = -1;  // of the whole vocabulary; -1: none
};
void embedding_backward(Context&, const EmbeddingBackwardArgs&);

// x[t] += table[begin + (first_row + t) % sequence]; table (P, H), P >= begin + sequence.
struct PositionArgs {
  Tensor x, table;  // (T, H), (P, H)
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t begin = 0;  // the position of each sample's first row
};
void position_forward(Context&, const PositionArgs&);
// grad_table[(first_row + t) % sequence] += grad_x[t], ascending t; grad_table (P, H) fp32.
struct PositionBackwardArgs {
  Tensor grad_x, grad_table;
  std::int64_t sequence = 0;
  std::int64_t first_row = 0;
};
void position_backward(Context&, const PositionBackwardArgs&);

}  // namespace trident
