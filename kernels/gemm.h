// Matrix products of row-major tensors, with an optional bias and an optional epilogue: GELU, its
// gradient, or a bias gradient.
//
// gemm checks its arguments (Error if one does not fit), enqueues the work on the context's stream
// and returns; see kernels/backend.h.
#pragma once

#include "core/context.h"

namespace trident {

// c[m, n] := op(a)[m, k] · op(b)[k, n] (+ bias[n]) (+ c, with `accumulate`).
// op(x) is x, or x transposed if its flag is set: transpose_a means that a is stored as [k, m]. a
// and b are both fp32, bf16 or fp16. c has their dtype or fp32; bias has a's dtype. Products
// accumulate in fp32 whatever the dtype.
struct GemmArgs {
  Tensor a, b, c;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  Tensor bias;  // optional

  // Epilogues, at most one of them. They run in the same pass as the product if the backend can.
  Tensor pre_activation;  // [m, n], c's dtype: product + bias; c := its GELU; no accumulate
  Tensor gelu_input;      // [m, n], c's dtype: c := product · GELU'(it); no bias, no accumulate
  Tensor bias_gradient;   // [m] fp32, bf16, fp16: += sums of op(a) over k; needs transpose_a
  bool alone() const { return !pre_activation && !gelu_input && !bias_gradient; }
};
void gemm(Context&, const GemmArgs&);

}  // namespace trident
