// Rows of a mixture of experts: tokens sorted by expert, and the experts' activation.
//
// Letters: T tokens, H columns, E experts, K experts that a token takes, R rows: the pairs of a
// token and an expert, at most T·K. x, y and their gradients have one dtype: fp32, bf16 or fp16.
// Each function checks its arguments (Error if one does not fit), enqueues the work on the
// context's stream and returns; see kernels/backend.h.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

// Numbers the pairs by expert, those of one expert by token: a stable counting sort.
struct SortByExpertArgs {
  Tensor experts;  // (T, K) i32; a pair of another number than 0 … E - 1 gets no row
  Tensor ends;     // (E) i64: the rows of expert e are ends[e - 1] … ends[e] - 1
  Tensor rows;     // (T, K) i32: the row of each pair, -1 without one
  Tensor pairs;    // (T·K) i32: the pair t·K + k of each row, -1 behind the last row
};
void sort_by_expert(Context&, const SortByExpertArgs&);

// Drops the pairs of a sample beyond an expert's capacity, those at later positions first: such a
// pair of `kept` is -1. Token t is row first_row + t of the micro-batch, whose samples have
// `sequence` rows each.
struct DropPairsArgs {
  Tensor experts;  // (T, K) i32, from 0 to E - 1
  // (B, E) i64: in, the pairs at positions before first_row; out, those up to this call's last one.
  Tensor counts;
  std::int64_t capacity = 0, sequence = 0, first_row = 0;
  Tensor kept;  // (T, K) i32
};
void drop_pairs(Context&, const DropPairsArgs&);

// y[r] = x[indices[r] / divisor], or 0 where the index is negative. So the rows of a token are
// copies of it (divisor K, indices `pairs`), and the gradient of a row is that of its token.
struct GatherRowsArgs {
  Tensor x;        // (N, H)
  Tensor indices;  // (R) i32, below N · divisor
  std::int64_t divisor = 1;
  Tensor y;  // (R, H)
};
void gather_rows(Context&, const GatherRowsArgs&);

// y[t] = the sum over k of x[rows[t, k]], in ascending k, added in fp32 and rounded once. A
// negative row adds nothing. With `accumulate` the sum begins with y[t].
struct SumRowsArgs {
  Tensor x;     // (R, H)
  Tensor rows;  // (T, K) i32
  Tensor y;     // (T, H)
  bool accumulate = false;
};
void sum_rows(Context&, const SumRowsArgs&);

// A gated unit, up' · gate' · sigmoid(alpha · gate'): SwiGLU by default. With a limit gate' =
// min(gate, limit) and up' = clamp(up, -limit, limit) + shift (gpt-oss).
struct GatedUnit {
  float alpha = 1, limit = 0, shift = 0;  // limit 0: none
  bool interleaved = false;  // gate and up take turns in a row; else all gates come first
  bool is_swiglu() const { return alpha == 1 && limit == 0 && shift == 0 && !interleaved; }
};

// The gated unit of experts, times the weight of each row.
struct ExpertActivationArgs {
  Tensor x;        // (R, 2F): gate, then up
  Tensor weights;  // (R) fp32
  Tensor y;        // (R, F) = weight · unit(gate, up)
  GatedUnit unit = {};
};
void expert_activation(Context&, const ExpertActivationArgs&);
struct ExpertActivationBackwardArgs {
  Tensor x, weights;    // as in forward
  Tensor grad_y;        // (R, F)
  Tensor grad_x;        // (R, 2F); may share x's memory
  Tensor grad_weights;  // (R) fp32
  Tensor y;             // (R, F): forward's result again; may share grad_y's memory
  GatedUnit unit = {};
};
void expert_activation_backward(Context&, const ExpertActivationBackwardArgs&);

// y[t] += sigmoid(gates[t]) · x[t]: the gated output of an expert that all tokens take
// (Qwen2-MoE).
struct GateRowsArgs {
  Tensor x;      // (T, H)
  Tensor gates;  // (T, 1), of x's dtype
  Tensor y;      // (T, H)
};
void gate_rows(Context&, const GateRowsArgs&);
struct GateRowsBackwardArgs {
  Tensor x, gates;    // as in forward
  Tensor grad_y;      // (T, H)
  Tensor grad_x;      // (T, H); may share x's memory
  Tensor grad_gates;  // (T, 1)
};
void gate_rows_backward(Context&, const GateRowsBackwardArgs&);

}  // namespace trident
