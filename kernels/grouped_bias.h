// Biases of a mixture of experts: each row with the bias of its expert.
//
// Letters R, E, S and the tensor `ends` as in kernels/grouped_gemm.h; N columns. Sums are in fp32.
// Each function checks its arguments (Error if one does not fit; ends are read when the work runs),
// enqueues the work on the context's stream and returns; see kernels/backend.h.
#pragma once

#include "core/context.h"

namespace trident {

// x[r] += weights[r] · bias[e] for the rows r of expert e; without weights x[r] += bias[e].
struct GroupedBiasArgs {
  Tensor bias;     // (E, N), of x's dtype
  Tensor weights;  // (R) fp32, optional
  Tensor ends;     // (S·E) i64, ascending
  Tensor x;        // (R, N) fp32, bf16 or fp16
};
void grouped_bias(Context&, const GroupedBiasArgs&);

// grad_bias[e] += the sum of weights[r] · grad[r], a source's sum complete before it is added, and
// grad_weights[r] += grad[r] · bias[e]; each where its tensor is defined.
struct GroupedBiasBackwardArgs {
  Tensor bias, weights, ends;  // as in forward; bias is read for grad_weights alone
  Tensor grad;                 // (R, N)
  Tensor grad_bias;            // (E, N) fp32, bf16 or fp16
  Tensor grad_weights;         // (R) fp32
};
void grouped_bias_backward(Context&, const GroupedBiasBackwardArgs&);

}  // namespace trident
