#include "parallel/tensor/linear.h"

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {

Tensor TensorParallel::gather_rows(Context& context, const Tensor& x) const {
  if (size == 1 || !sequence_parallel) return x;
  Tensor all = context.empty({x.dim(0) * size, x.dim(1)}, x.dtype(), Category::activation);
  group.all_gather(context, x, all);
  return all;
}

Tensor TensorParallel::sum_to_rows(Context& context, const Tensor& x) const {
  if (size == 1) return x;
  if (!sequence_parallel) {
    group.all_reduce(context, x);
    return x;
  }
  Tensor part = context.empty({x.dim(0) / size, x.dim(1)}, x.dtype(), Category::activation);
  group.reduce_scatter(context, x, part);
  return part;
}

ColumnParallelLinear::ColumnParallelLinear(TensorParallel parallel, Weight weight, Weight bias)
    : parallel_(std::move(parallel)), weight_(std::move(weight)), bias_(std::move(bias)) {}

Tensor ColumnParallelLinear::forward(Context& context, WeightVersion version, const Tensor& x,
                                     LinearRecord& record) const {
  const Tensor input = parallel_.gather_rows(context, x);
  record.input = parallel_.gathers_again ? x : input;
  Tensor y = context.empty({input.dim(0), weight_.dim(0)}, x.dtype(), Category::activation);
  gemm(context, {.a = input,
                 .b = weight_.acquire(version).tensor(),
                 .c = y,
                 .transpose_b = true,
                 .bias = bias_ ? bias_.acquire(version).tensor() : Tensor()});
  return y;
}

Tensor ColumnParallelLinear::backward_input(Context& context, WeightVersion version,
                                            const Tensor& grad_y, LinearRecord& record) const {
  record.gradient = grad_y;
  Tensor grad_x =
      context.empty({grad_y.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
  gemm(context, {.a = grad_y, .b = weight_.acquire(version).tensor(), .c = grad_x});
  return parallel_.sum_to_rows(context, grad_x);
}

void ColumnParallelLinear::backward_weight(Context& context, LinearRecord& record) const {
  if (parallel_.gathers_again) record.input = parallel_.gather_rows(context, record.input);
  weight_.add_product(context, record.gradient, record.input);
  if (bias_) bias_backward(context, record.gradient, bias_.gradient(context));
  record = {};
}

RowParallelLinear::RowParallelLinear(TensorParallel parallel, Weight weight, Weight bias)
    : parallel_(std::move(parallel)), weight_(std::move(weight)), bias_(std::move(bias)) {}

Tensor RowParallelLinear::forward(Context& context, WeightVersion version, const Tensor& x,
                                  LinearRecord& record) const {
  record.input = x;
  const bool fused = parallel_.size == 1 && bias_;  // else the bias is added once, after the sum
  Tensor partial = context.empty({x.dim(0), weight_.dim(0)}, x.dtype(), Category::activation);
  gemm(context, {.a = x,
                 .b = weight_.acquire(version).tensor(),
                 .c = partial,
                 .transpose_b = true,
                 .bias = fused ? bias_.acquire(version).tensor() : Tensor()});
  Tensor y = parallel_.sum_to_rows(context, partial);
  if (bias_ && !fused) add_bias(context, y, bias_.acquire(version).tensor(), y);
  return y;
}

Tensor RowParallelLinear::backward_input(Context& context, WeightVersion version,
                                         const Tensor& grad_y, LinearRecord& record) const {
  record.gradient = parallel_.gather_rows(context, grad_y);
  Tensor grad_x =
      context.empty({record.gradient.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
  gemm(context, {.a = record.gradient, .b = weight_.acquire(version).tensor(), .c = grad_x});
  return grad_x;
}

void RowParallelLinear::backward_weight(Context& context, LinearRecord& record) const {
  weight_.add_product(context, record.gradient, record.input);
  if (bias_) {
    // Under sequence parallelism of this rank's rows alone; the tensor group adds up later.
    const std::int64_t rows = record.gradient.dim(0) / parallel_.size;
    bias_backward(context,
                  parallel_.sequence_parallel ? record.gradient.rows(parallel_.rank * rows, rows)
                                              : record.gradient,
                  bias_.gradient(context));
  }
  record = {};
}

}  // namespace trident
