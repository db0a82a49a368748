// Matrix products of a mixture of experts: each row with the matrix of its expert, and the
// gradients of these matrices. No row is padded.
//
// Letters: R rows, E experts, M, N, K extents. The rows of one expert follow each other, once for
// each of S sources (ranks that send rows): group s·E + e holds the rows of source s for expert e,
// from ends[s·E + e - 1] (0 for the first group) to ends[s·E + e] - 1. The last end is at most R;
// rows behind it are not touched. The bits of a row of the result depend on that row and its matrix
// alone, never on the other rows. Products accumulate in fp32.
//
// Each function checks its arguments (Error if one does not fit; ends are read when the work runs),
// enqueues the work on the context's stream and returns; see kernels/backend.h.
#pragma once

#include "core/context.h"

namespace trident {

// c[r] := a[r] · op(b[e]) for the rows r of expert e. op(b[e]) is b[e], or b[e] transposed.
struct GroupedGemmArgs {
  Tensor a, b, c;  // (R, K), (E, K, N) or transposed (E, N, K), (R, N); fp32, bf16 or fp16, all one
  Tensor ends;     // (S·E) i64, ascending
  bool transpose_b = false;
};
void grouped_gemm(Context&, const GroupedGemmArgs&);

// c[e] (+)= the sum over sources of a[r]ᵀ b[r] over the source's rows of expert e. A source's sum
// is complete before it is added; sources are added in their order, in fp32, and the sum is rounded
// once.
struct GroupedWeightGemmArgs {
  Tensor a, b;  // (R, M), (R, N) fp32, bf16 or fp16, both one
  Tensor c;     // (E, M, N) fp32, bf16 or fp16
  Tensor ends;  // (S·E) i64, ascending
  bool accumulate = false;
};
void grouped_weight_gemm(Context&, const GroupedWeightGemmArgs&);

}  // namespace trident
