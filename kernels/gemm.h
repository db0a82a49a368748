// Matrix products.
#pragma once

#include "core/context.h"

namespace trident {

// c[m, n] := op(a)[m, k] · op(b)[k, n] (+ bias[n]) (+ c, where accumulate).
// op(x) is x, or x transposed where the flag is set: transpose_a means a is stored [k, m].
// a and b are both fp32, bf16 or fp16; c is of their dtype or fp32; bias is of a's dtype.
// Products are accumulated in fp32 whatever the dtype.
struct GemmArgs {
  Tensor a, b, c;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  Tensor bias;  // optional

  // What goes with the product, in the same pass where the backend can. At most one of them.
  Tensor pre_activation;  // [m, n] of c's dtype := the product and bias, c its GELU; no accumulate
  Tensor gelu_input;      // [m, n] of c's dtype: c := product · GELU'(gelu_input), alone
  Tensor bias_gradient;   // [m] += sums over k of op(a), fp32, bf16 or fp16; with transpose_a
  bool alone() const { return !pre_activation && !gelu_input && !bias_gradient; }
};
void gemm(Context&, const GemmArgs&);

}  // namespace trident
