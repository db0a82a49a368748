// Fills, casts and sums of tensors. The tensors of one call have the same number of elements,
// unless a comment gives shapes.
//
// Each function checks its arguments (Error if one does not fit), enqueues the work on the
// context's stream and returns; see kernels/backend.h.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"

namespace trident {

void fill(Context&, const Tensor& x, double value);         // any dtype
void copy(Context&, const Tensor& from, const Tensor& to);  // casts between fp64, fp32, bf16, fp16
// y += x; each fp32, bf16 or fp16, or both i64.
void add(Context&, const Tensor& x, const Tensor& y);
void scale(Context&, const Tensor& x, float factor);  // x *= factor; fp32
// x += part · (target - x); fp32.
void lerp(Context&, const Tensor& x, const Tensor& target, float part);

// y (T, H) := x (T, H) + bias (H). y may share x's memory. All three have one dtype: fp32, bf16 or
// fp16.
void add_bias(Context&, const Tensor& x, const Tensor& bias, const Tensor& y);
// grad_bias (H) += the column sums of grad_y (T, H), accumulated in fp32. Each tensor is fp32, bf16
// or fp16.
void bias_backward(Context&, const Tensor& grad_y, const Tensor& grad_bias);

// total (1) f64 := the sum of x's elements in fp64, in a fixed order: index order on the CPU, fixed
// chunks on a GPU.
void sum(Context&, const Tensor& x, const Tensor& total);

// out (ceil(n / block)) f64: out[i] is the sum of squares of block i of the flat x. The order of
// additions within a block is fixed, so the block sums do not depend on which rank computes them.
void square_sums(Context&, const Tensor& x, std::int64_t block, const Tensor& out);
// The same for several tensors; a GPU does it in few launches.
struct SquareSumsArgs {
  Tensor x, out;
};
void square_sums(Context&, const std::vector<SquareSumsArgs>& all, std::int64_t block);

// Adds the elements of x, f64 and fewer than 2^28, to an exact sum (core/exact_sum.h). The result
// does not depend on their order. state (ExactSum::limbs + 1) i64 is the state of the sum.
void exact_sum(Context&, const Tensor& x, const Tensor& state);

// Fills x (fp32, bf16 or fp16) with deviation · normal(key, global index) + mean. Element (r, c) of
// the local 2-D (or 1-D) view has the global index (row_begin + r)·global_columns + column_begin +
// c. Rows at or beyond global_rows and columns at or beyond global_columns are set to 0.
struct NormalArgs {
  Tensor x;
  std::uint64_t key = 0;
  float deviation = 0.02f, mean = 0;
  std::int64_t row_begin = 0, column_begin = 0;
  std::int64_t global_rows = 0, global_columns = 0;
};
void fill_normal(Context&, const NormalArgs&);

}  // namespace trident
