#include "parallel/tensor/linear.h"

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {
namespace {

// These rows of a tensor; undefined where the tensor is.
Tensor part(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x ? x.rows(begin, count) : Tensor();
}

// A product that reads rows of a and writes rows of c, as a function of the rows.
TensorParallel::Product by_rows(Context& context, const GemmArgs& args) {
  return [&context, args](std::int64_t begin, std::int64_t count) {
    GemmArgs rows = args;
    rows.a = part(args.a, begin, count);
    rows.c = part(args.c, begin, count);
    rows.pre_activation = part(args.pre_activation, begin, count);
    rows.gelu_input = part(args.gelu_input, begin, count);
    gemm(context, rows);
  };
}

}  // namespace

Placement TensorParallel::replicated(const Shape& global) const {
  Placement placement = Placement::replicated(global);
  if (sequence_parallel) placement.partial = {Group::tensor};
  return placement;
}

Placement TensorParallel::part(const Shape& global, int dim, std::int64_t padded) const {
  const std::int64_t extent = padded == 0 ? global.dim(dim) : padded;
  return Placement::replicated(global).shard(dim, Group::tensor, {extent}, rank, size);
}

Placement TensorParallel::stacked(const Shape& global,
                                  const std::vector<std::int64_t>& blocks) const {
  return Placement::replicated(global).shard(0, Group::tensor, blocks, rank, size);
}

Tensor TensorParallel::gather_rows(Context& context, const Tensor& x) const {
  if (size == 1 || !sequence_parallel) return x;
  Tensor all = context.empty({x.dim(0) * size, x.dim(1)}, x.dtype(), Category::activation);
  group.all_gather(context, x, all);
  return all;
}

Tensor TensorParallel::reduce_partial_sums(Context& context, const Tensor& x) const {
  if (size == 1) return x;
  if (!sequence_parallel) {
    group.all_reduce(context, x);
    return x;
  }
  Tensor part = context.empty({x.dim(0) / size, x.dim(1)}, x.dtype(), Category::activation);
  group.reduce_scatter(context, x, part);
  return part;
}

Tensor TensorParallel::gather_rows(
    Context& context, const Tensor& x,
    const std::function<Product(const Tensor& all)>& make_product) const {
  if (!overlaps_by_rows()) {
    Tensor all = gather_rows(context, x);
    make_product(all)(0, all.dim(0));
    return all;
  }
  const std::int64_t rows = x.dim(0);
  Tensor all = context.empty({rows * size, x.dim(1)}, x.dtype(), Category::activation);
  copy(context, x, all.rows(rank * rows, rows));
  std::vector<Work> coming;
  for (int r = 0; r < size; ++r) {
    coming.push_back(group.broadcast(context, all.rows(r * rows, rows), r, Async::yes));
  }
  const Product product = make_product(all);
  product(rank * rows, rows);
  for (int r = 0; r < size; ++r) {
    coming[static_cast<std::size_t>(r)].wait(context);
    if (r != rank) product(r * rows, rows);
  }
  return all;
}

Tensor TensorParallel::reduce_partial_sums(Context& context, const Tensor& x,
                                           const Product& product) const {
  if (!overlaps_by_rows()) {
    product(0, x.dim(0));
    return reduce_partial_sums(context, x);
  }
  // Each step multiplies a part of every rank's rows and then reduces it while the next part is
  // multiplied. Parts are large enough to keep a GPU busy.
  const std::int64_t rows = x.dim(0) / size;
  const std::int64_t parts = rows >= 4096 ? 4 : 2, step = (rows + parts - 1) / parts;
  Tensor own = context.empty({rows, x.dim(1)}, x.dtype(), Category::activation);
  std::vector<Work> going;
  std::vector<Tensor> kept;  // until they are reduced
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    const std::int64_t count = std::min(step, rows - begin);
    const Tensor& part = kept.emplace_back(
        context.empty({count * size, x.dim(1)}, x.dtype(), Category::communication));
    for (int r = 0; r < size; ++r) {
      product(r * rows + begin, count);
      copy(context, x.rows(r * rows + begin, count), part.rows(r * count, count));
    }
    going.push_back(
        group.reduce_scatter(context, part, own.rows(begin, count), ReduceOp::sum, Async::yes));
  }
  for (const Work& work : going) work.wait(context);
  return own;
}

ColumnParallelLinear::ColumnParallelLinear(TensorParallel parallel, Weight weight, Weight bias)
    : parallel_(std::move(parallel)), weight_(std::move(weight)), bias_(std::move(bias)) {}

void ColumnParallelLinear::multiply(Context& context, WeightVersion version, const Tensor& x,
                                    LinearActivations& saved, Tensor& y,
                                    Tensor* pre_activation) const {
  const Tensor input = parallel_.gather_rows(context, x, [&](const Tensor& all) {
    const auto make = [&] {
      return context.empty({all.dim(0), weight_.dim(0)}, x.dtype(), Category::activation);
    };
    if (pre_activation) *pre_activation = make();
    y = make();
    return by_rows(context, {.a = all,
                             .b = weight_.acquire(version).tensor(),
                             .c = y,
                             .transpose_b = true,
                             .bias = bias_ ? bias_.acquire(version).tensor() : Tensor(),
                             .pre_activation = pre_activation ? *pre_activation : Tensor()});
  });
  saved.input = parallel_.gathers_again ? x : input;
}

Tensor ColumnParallelLinear::forward(Context& context, WeightVersion version, const Tensor& x,
                                     LinearActivations& saved) const {
  Tensor y;
  multiply(context, version, x, saved, y, nullptr);
  return y;
}

Tensor ColumnParallelLinear::forward_gelu(Context& context, WeightVersion version, const Tensor& x,
                                          LinearActivations& saved, Tensor& pre_activation) const {
  Tensor y;
  multiply(context, version, x, saved, y, &pre_activation);
  return y;
}

Tensor ColumnParallelLinear::backward_input(Context& context, WeightVersion version,
                                            const Tensor& grad_y, LinearActivations& saved) const {
  saved.gradient = grad_y;
  Tensor grad_x =
      context.empty({grad_y.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
  return parallel_.reduce_partial_sums(
      context, grad_x,
      by_rows(context, {.a = grad_y, .b = weight_.acquire(version).tensor(), .c = grad_x}));
}

void ColumnParallelLinear::backward_weight(Context& context, LinearActivations& saved) const {
  if (parallel_.gathers_again) saved.input = parallel_.gather_rows(context, saved.input);
  weight_.add_product(context, saved.gradient, saved.input,
                      bias_ ? bias_.gradient(context) : Tensor());
  saved = {};
}

RowParallelLinear::RowParallelLinear(TensorParallel parallel, Weight weight, Weight bias)
    : parallel_(std::move(parallel)), weight_(std::move(weight)), bias_(std::move(bias)) {}

Tensor RowParallelLinear::forward(Context& context, WeightVersion version, const Tensor& x,
                                  LinearActivations& saved) const {
  saved.input = x;
  const bool fused = parallel_.size == 1 && bias_;  // else the bias is added once, after the sum
  Tensor partial = context.empty({x.dim(0), weight_.dim(0)}, x.dtype(), Category::activation);
  Tensor y = parallel_.reduce_partial_sums(
      context, partial,
      by_rows(context, {.a = x,
                        .b = weight_.acquire(version).tensor(),
                        .c = partial,
                        .transpose_b = true,
                        .bias = fused ? bias_.acquire(version).tensor() : Tensor()}));
  if (bias_ && !fused) add_bias(context, y, bias_.acquire(version).tensor(), y);
  return y;
}

Tensor RowParallelLinear::backward_input(Context& context, WeightVersion version,
                                         const Tensor& grad_y, LinearActivations& saved,
                                         const Tensor& pre_activation) const {
  Tensor grad_x;
  saved.gradient = parallel_.gather_rows(context, grad_y, [&](const Tensor& all) {
    grad_x = context.empty({all.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
    return by_rows(context, {.a = all,
                             .b = weight_.acquire(version).tensor(),
                             .c = grad_x,
                             .gelu_input = pre_activation});
  });
  return grad_x;
}

void RowParallelLinear::backward_weight(Context& context, LinearActivations& saved) const {
  // The gradient of a replicated bias must be bitwise identical on all ranks of the tensor group.
  // It is therefore not fused with a product: an algorithm that is chosen by time may differ
  // between ranks.
  const bool alone = parallel_.size == 1;
  weight_.add_product(context, saved.gradient, saved.input,
                      bias_ && alone ? bias_.gradient(context) : Tensor());
  if (bias_ && !alone) {
    // Under sequence parallelism it covers this rank's rows alone; the tensor group sums it later.
    const std::int64_t rows =
        saved.gradient.dim(0) / (parallel_.sequence_parallel ? parallel_.size : 1);
    const std::int64_t first = parallel_.sequence_parallel ? parallel_.rank * rows : 0;
    bias_backward(context, saved.gradient.rows(first, rows), bias_.gradient(context));
  }
  saved = {};
}

}  // namespace trident
