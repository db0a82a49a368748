// Fills, casts, sums. Tensors of one call have equally many elements.
#pragma once

#include <cstdint>

#include "core/context.h"

namespace trident {

void fill(Context&, const Tensor& x, double value);         // any dtype
void copy(Context&, const Tensor& from, const Tensor& to);  // casts between fp64, fp32, bf16, fp16
void add(Context&, const Tensor& x, const Tensor& y);       // y += x; each fp32, bf16 or fp16
void scale(Context&, const Tensor& x, float factor);        // x *= factor; fp32
// x += part · (target - x); fp32.
void lerp(Context&, const Tensor& x, const Tensor& target, float part);

// y (T, H) := x (T, H) + bias (H); y may be x's memory; fp32, bf16 or fp16.
void add_bias(Context&, const Tensor& x, const Tensor& bias, const Tensor& y);
// grad_bias (H) += column sums of grad_y (T, H), added up in fp32; each fp32, bf16 or fp16.
void bias_backward(Context&, const Tensor& grad_y, const Tensor& grad_bias);

// Sum of x's elements in index order in fp64: sum (1) f64.
void sum(Context&, const Tensor& x, const Tensor& total);

// out[i] (ceil(n / block)) f64 = sum of squares of block i of the flat x, in a fixed order
// within the block, so that sums over blocks can be combined exactly whoever holds them.
void square_sums(Context&, const Tensor& x, std::int64_t block, const Tensor& out);

// state (ExactSum::limbs + 1) i64, of an exact sum (core/exact_sum.h): adds x's elements, f64,
// fewer than 2^28 of them, whatever their order.
void exact_sum(Context&, const Tensor& x, const Tensor& state);

// Fills x (fp32, bf16 or fp16) with deviation · normal(key, global index) + mean. Element (r, c) of
// the local 2-D (or 1-D) view has the global index (row_begin + r)·global_columns + column_begin +
// c; rows at or beyond global_rows and columns at or beyond global_columns are set to 0.
struct NormalArgs {
  Tensor x;
  std::uint64_t key = 0;
  float deviation = 0.02f, mean = 0;
  std::int64_t row_begin = 0, column_begin = 0;
  std::int64_t global_rows = 0, global_columns = 0;
};
void fill_normal(Context&, const NormalArgs&);

}  // namespace trident
