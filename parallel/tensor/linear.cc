#include "parallel/tensor/linear.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace trident {
namespace {

// These rows of a tensor; undefined where the tensor is.
Tensor part(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x ? x.rows(begin, count) : Tensor();
}

// A product that reads rows of a and writes rows of c, as a function of the rows.
ParallelContext::Product by_rows(Context& context, const GemmArgs& args) {
  return [&context, args](std::int64_t begin, std::int64_t count) {
    GemmArgs rows = args;
    rows.a = part(args.a, begin, count);
    rows.c = part(args.c, begin, count);
    rows.pre_activation = part(args.pre_activation, begin, count);
    rows.gelu_input = part(args.gelu_input, begin, count);
    gemm(context, rows);
  };
}

Weight parameter(std::string name, Placement placement, Initial initial, ParameterRole role) {
  return Weight(std::make_shared<Parameter>(ParameterSpec{.name = std::move(name),
                                                          .placement = std::move(placement),
                                                          .initial = initial,
                                                          .role = role}));
}

}  // namespace

Linear ParallelContext::linear(const LinearSpec& spec) const {
  const std::int64_t out = std::accumulate(spec.out.begin(), spec.out.end(), std::int64_t{0});
  const Shape shape{out, spec.in};
  const auto placement = [&](const Shape& of) {
    switch (spec.role) {
      case LinearRole::column:
        return stacked(of, spec.out);
      case LinearRole::row:
        return of.rank() == 2 ? sharded(of, 1) : replicated(of);
      case LinearRole::vocabulary:
        return sharded(of, 0, spec.padded);
      case LinearRole::replicated:
        break;
    }
    return replicated(of);
  };
  const bool head = spec.role == LinearRole::vocabulary;
  if (head && spec.bias) throw Error("Linear: a vocabulary has no bias");
  Weight bias;
  Weight weight =
      parameter(spec.name + ".weight", placement(shape), Initial::normal(spec.init_deviation),
                head ? ParameterRole::head : ParameterRole::matrix);
  if (spec.bias)
    bias =
        parameter(spec.name + ".bias", placement({out}), Initial::zeros(), ParameterRole::vector);
  return Linear(*this, spec.role, std::move(weight), std::move(bias));
}

Linear::Linear(ParallelContext parallel, LinearRole role, Weight weight, Weight bias)
    : parallel_(std::move(parallel)),
      role_(role),
      weight_(std::move(weight)),
      bias_(std::move(bias)) {}

// Keep bias before weight: bucket layout and existing checkpoints depend on it.
void Linear::collect(std::vector<std::shared_ptr<Parameter>>& into) const {
  if (bias_) into.push_back(bias_.parameter());
  into.push_back(weight_.parameter());
}

Placement Linear::input(std::int64_t rows) const {
  const Placement& weight = weight_.parameter()->spec().placement;
  const Shape global{rows, weight.global.dim(1)};
  if (!weight.is_sharded_along(1)) return parallel_.activations(global);
  Placement placement = Placement::replicated(global);
  placement.shardings[1] = weight.shardings[1];
  return placement;
}

Placement Linear::output(std::int64_t rows) const {
  const Placement& weight = weight_.parameter()->spec().placement;
  const Shape global{rows, weight.global.dim(0)};
  if (!weight.is_sharded_along(0)) return parallel_.activations(global);
  Placement placement = Placement::replicated(global);
  placement.shardings[1] = weight.shardings[0];
  return placement;
}

Tensor Linear::forward(Context& context, WeightVersion version, const Tensor& x,
                       LinearActivations& saved) const {
  Tensor y;
  if (role_ == LinearRole::row) return forward_row(context, version, x, saved);
  multiply(context, version, x, saved, y, nullptr);
  return y;
}

Tensor Linear::forward_gelu(Context& context, WeightVersion version, const Tensor& x,
                            LinearActivations& saved, Tensor& pre_activation) const {
  if (role_ == LinearRole::row) throw Error("Linear: a row-parallel layer has no fused GELU");
  Tensor y;
  multiply(context, version, x, saved, y, &pre_activation);
  return y;
}

void Linear::multiply(Context& context, WeightVersion version, const Tensor& x,
                      LinearActivations& saved, Tensor& y, Tensor* pre_activation) const {
  const auto product = [&](const Tensor& all) {
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
  };
  if (role_ == LinearRole::replicated || role_ == LinearRole::vocabulary) {
    product(x)(0, x.dim(0));
    saved.input = x;
    return;
  }
  const Tensor input = parallel_.gather_rows(context, x, product);
  saved.input = parallel_.gathers_again() ? x : input;
}

Tensor Linear::forward_row(Context& context, WeightVersion version, const Tensor& x,
                           LinearActivations& saved) const {
  saved.input = x;
  const bool fused = parallel_.is_alone() && bias_;  // else the bias is added once, after the sum
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

Tensor Linear::backward_input(Context& context, WeightVersion version, const Tensor& grad_y,
                              LinearActivations& saved, const Tensor& pre_activation) const {
  Tensor grad_x;
  const auto product = [&](const Tensor& all) {
    grad_x = context.empty({all.dim(0), weight_.dim(1)}, grad_y.dtype(), Category::activation);
    return by_rows(context, {.a = all,
                             .b = weight_.acquire(version).tensor(),
                             .c = grad_x,
                             .gelu_input = pre_activation});
  };
  switch (role_) {
    case LinearRole::row:
      saved.gradient = parallel_.gather_rows(context, grad_y, product);
      return grad_x;
    case LinearRole::column: {
      saved.gradient = grad_y;
      const ParallelContext::Product run = product(grad_y);
      return parallel_.reduce_partial_sums(context, grad_x, run);
    }
    case LinearRole::replicated:
      saved.gradient = grad_y;
      product(grad_y)(0, grad_y.dim(0));
      return grad_x;
    case LinearRole::vocabulary:
      break;
  }
  throw Error("Linear: a vocabulary's backward passes are one");
}

void Linear::backward(Context& context, WeightVersion version, const Tensor& grad_y,
                      const Tensor& x, const Tensor& grad_x) const {
  if (role_ != LinearRole::vocabulary) throw Error("Linear: only a vocabulary's backward is one");
  gemm(context, {.a = grad_y, .b = weight_.acquire(version).tensor(), .c = grad_x});
  weight_.add_product(context, grad_y, x);
}

void Linear::backward_weight(Context& context, LinearActivations& saved) const {
  if (role_ == LinearRole::column && parallel_.gathers_again()) {
    saved.input = parallel_.gather_rows(context, saved.input);
  }
  // The gradient of a replicated bias must be bitwise identical on all ranks of the tensor group.
  // It is therefore not fused with a product: an algorithm that is chosen by time may differ
  // between ranks.
  const bool fused = bias_ && (role_ == LinearRole::column || parallel_.is_alone());
  weight_.add_product(context, saved.gradient, saved.input,
                      fused ? bias_.gradient(context) : Tensor());
  if (bias_ && !fused) {
    // Under sequence parallelism it covers this rank's rows alone; the tensor group sums it later.
    const auto rows = role_ == LinearRole::row ? parallel_.own_rows(saved.gradient.dim(0))
                                               : ParallelContext::Range{0, saved.gradient.dim(0)};
    bias_backward(context, saved.gradient.rows(rows.begin, rows.count), bias_.gradient(context));
  }
  saved = {};
}

}  // namespace trident
