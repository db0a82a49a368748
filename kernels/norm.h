// LayerNorm and RMSNorm over rows, with their gradients.
//
// Letters: T rows, H columns. x, y, their gradients and the weights have one dtype: fp32, bf16 or
// fp16. Statistics are fp32. Weight gradients are fp32, bf16 or fp16. Each function checks its
// arguments (Error if one does not fit), enqueues the work on the context's stream and returns; see
// kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "kernels/head_columns.h"

namespace trident {

// Without a bias: RMSNorm (Zhang & Sennrich 2019), y = x / rms(x) * weight.
// With a bias: LayerNorm (Ba 2016), y = (x - mean) / sqrt(var + epsilon) * weight + bias.
struct NormArgs {
  Tensor x, weight, bias;  // (T, H), (H), (H)
  Tensor y;                // (T, H)
  Tensor mean, rstd;       // (T) fp32, saved for backward; mean undefined for RMSNorm
  float epsilon = 1e-5f;
};
void norm_forward(Context&, const NormArgs&);

struct NormBackwardArgs {
  Tensor grad_y, x, weight;  // (T, H), (T, H), (H)
  Tensor mean, rstd;         // (T); mean undefined for RMSNorm
  Tensor grad_x;             // (T, H); may share grad_y's memory
  Tensor residual_grad;      // (T, H) optional, added to grad_x; may share its memory
};
void norm_backward_input(Context&, const NormBackwardArgs&);

struct NormWeightArgs {
  Tensor grad_y, x;               // (T, H)
  Tensor mean, rstd;              // (T); mean undefined for RMSNorm
  Tensor grad_weight, grad_bias;  // (H), accumulated; grad_bias undefined for RMSNorm
};
void norm_backward_weight(Context&, const NormWeightArgs&);

// RMSNorm of each head's D elements by one weight (Qwen3's norms of queries and keys). The heads
// lie side by side in T rows; x and y may be other columns of one tensor.
struct HeadNormArgs {
  std::int64_t heads = 0;
  HeadColumns x, y;
  Tensor weight;  // (D)
  Tensor rstd;    // (heads, T) fp32, saved for backward
  float epsilon = 1e-5f;
};
void head_norm_forward(Context&, const HeadNormArgs&);

struct HeadNormBackwardArgs {
  std::int64_t heads = 0;
  HeadColumns grad_y, x;
  Tensor weight, rstd;  // as in forward
  HeadColumns grad_x;
};
void head_norm_backward_input(Context&, const HeadNormBackwardArgs&);

struct HeadNormWeightArgs {
  std::int64_t heads = 0;
  HeadColumns grad_y, x;
  Tensor rstd;
  Tensor grad_weight;  // (D), accumulated
};
void head_norm_backward_weight(Context&, const HeadNormWeightArgs&);

// RMSNorm of rows whose columns several ranks hold (OLMoE's norms of all query or key heads
// together): the ranks add up the squares of a row, then each norms its own columns. The gradient
// of the weight is head_norm_backward_weight() of one head.
//
// C columns here, N on all ranks.
struct RowDotsArgs {
  HeadColumns x, y;  // C columns of T rows
  Tensor weight;     // (C), optional
  std::int64_t columns = 0;
  Tensor dots;  // (T) fp32 = Σ over the columns of x · y · weight
};
void row_dots(Context&, const RowDotsArgs&);

struct RowNormArgs {
  HeadColumns x, y;
  Tensor weight;                 // (C)
  Tensor squares;                // (T) fp32: the sum of the squares of a row's N elements
  std::int64_t all_columns = 0;  // N
  Tensor rstd;                   // (1, T) fp32, saved for backward
  float epsilon = 1e-5f;
};
void row_norm_forward(Context&, const RowNormArgs&);

struct RowNormBackwardArgs {
  HeadColumns grad_y, x;
  Tensor weight, rstd;           // as in forward
  Tensor dots;                   // (T) fp32: row_dots() of grad_y, x and weight over N columns
  std::int64_t all_columns = 0;  // N
  HeadColumns grad_x;
};
void row_norm_backward_input(Context&, const RowNormBackwardArgs&);

}  // namespace trident
