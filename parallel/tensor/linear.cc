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

void ColumnParallelLinear::multiply(Context& context, WeightVersion version, const Tensor& x,
                                    LinearRecord& record, Tensor& y, Tensor* pre_activation) const {
  const Tensor input = parallel_.gather_rows(context, x);
  record.input = parallel_.gathers_again ? x : input;
  const auto make = [&] {
    return context.empty({input.dim(0), weight_.dim(0)}, x.dtype(), Category::activation);
  };
  if (pre_activation) *pre_activation = make();
  y = make();
  gemm(context, {.a = input,
                 .b = weight_.acquire(version).tensor(),
                 .c = y,
                 .transpose_b = true,
                 .bias = bias_ ? bias_.acquire(version).tensor() : Tensor(),
                 .pre_activation = pre_activation ? *pre_activation : Tensor()});
}

Tensor ColumnParallelLinear::forward(Context& context, WeightVersion version, const Tensor& x,
                                     LinearRecord& record) const {
  Tensor y;
  multiply(context, version, x, record, y, nullptr);
  return y;
}

Tensor ColumnParallelLinear::forward_gelu(Context& context, WeightVersion version, const Tensor& x,
                                          LinearRecord& record, Tensor& pre_activation) const {
  Tensor y;
  multiply(context, version, x, record, y, &pre_activation);
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
  weight_.add_product(context, record.gradient, record.input,
                      bias_ ? bias_.gradient(context) : Tensor());
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
                                         const Tensor& grad_y, LinearRecord& record,
                                         const Tensor& pre_activation) const {
  record.gradient = parallel_.gather_rows(context, grad_y);
  Tensor grad_x =
      context.empty({record.gradient.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
  gemm(context, {.a = record.gradient,
                 .b = weight_.acquire(version).tensor(),
                 .c = grad_x,
                 .gelu_input = pre_activation});
  return grad_x;
}

void RowParallelLinear::backward_weight(Context& context, LinearRecord& record) const {
  // Under sequence parallelism of this rank's rows alone; the tensor group adds up later.
  const bool part = bias_ && parallel_.sequence_parallel;
  weight_.add_product(context, record.gradient, record.input,
                      bias_ && !part ? bias_.gradient(context) : Tensor());
  if (part) {
    const std::int64_t rows = record.gradient.dim(0) / parallel_.size;
    bias_backward(context, record.gradient.rows(parallel_.rank * rows, rows),
                  bias_.gradient(context));
  }
  record = {};
}

}  // namespace trident
