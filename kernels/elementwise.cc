#include "kernels/elementwise.h"

#include "core/exact_sum.h"
#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_square_sums(const Tensor& x, std::int64_t block, const Tensor& out) {
  const Check check("square_sums");
  check.compute_dtype(x, "x");
  check.that(block > 0, "block " + std::to_string(block), "a positive number");
  check.dtype(out, "out", DType::f64);
  check.count(out, "out", (x.numel() + block - 1) / block);
}

}  // namespace

void fill(Context& context, const Tensor& x, double value) {
  Check("fill").defined(x, "x");
  launch(context, &Backend::fill, x, value);
}

void copy(Context& context, const Tensor& from, const Tensor& to) {
  const Check check("copy");
  check.defined(from, "from");
  check.count(to, "to", from.numel());
  check.that(from.dtype() == to.dtype() || (is_floating(from.dtype()) && is_floating(to.dtype())),
             Check::describe(from, "from") + " and " + std::string(Check::describe(to, "to")),
             "two floating-point types, or one type");
  launch(context, &Backend::copy, from, to);
}

void add(Context& context, const Tensor& x, const Tensor& y) {
  const Check check("add");
  check.defined(x, "x");
  if (x.dtype() == DType::i64) {
    check.dtype(y, "y", DType::i64);
  } else {
    check.compute_dtype(x, "x");
    check.compute_dtype(y, "y");
  }
  check.count(y, "y", x.numel());
  launch(context, &Backend::add, x, y);
}

void scale(Context& context, const Tensor& x, float factor) {
  Check("scale").dtype(x, "x", DType::f32);
  launch(context, &Backend::scale, x, factor);
}

void lerp(Context& context, const Tensor& x, const Tensor& target, float part) {
  const Check check("lerp");
  check.dtype(x, "x", DType::f32);
  check.dtype(target, "target", DType::f32);
  check.count(target, "target", x.numel());
  launch(context, &Backend::lerp, x, target, part);
}

void add_bias(Context& context, const Tensor& x, const Tensor& bias, const Tensor& y) {
  const Check check("add_bias");
  check.compute_dtype(x, "x");
  check.rank(x, "x", 2);
  check.dtype(bias, "bias", x.dtype());
  check.dtype(y, "y", x.dtype());
  check.shape(bias, "bias", {x.dim(1)});
  check.shape(y, "y", x.shape());
  launch(context, &Backend::add_bias, x, bias, y);
}

void bias_backward(Context& context, const Tensor& grad_y, const Tensor& grad_bias) {
  const Check check("bias_backward");
  check.compute_dtype(grad_y, "grad_y");
  check.rank(grad_y, "grad_y", 2);
  check.compute_dtype(grad_bias, "grad_bias");
  check.shape(grad_bias, "grad_bias", {grad_y.dim(1)});
  launch(context, &Backend::bias_backward, grad_y, grad_bias);
}

void sum(Context& context, const Tensor& x, const Tensor& total) {
  const Check check("sum");
  check.defined(x, "x");
  if (x.dtype() != DType::f64) check.compute_dtype(x, "x");
  check.dtype(total, "total", DType::f64);
  check.count(total, "total", 1);
  launch(context, &Backend::sum, x, total);
}

void square_sums(Context& context, const Tensor& x, std::int64_t block, const Tensor& out) {
  check_square_sums(x, block, out);
  launch(context, &Backend::square_sums, x, block, out);
}
void square_sums(Context& context, const std::vector<SquareSumsArgs>& all, std::int64_t block) {
  if (takes_all(context, &Backend::square_sums_of_all)) {
    for (const SquareSumsArgs& args : all) check_square_sums(args.x, block, args.out);
    launch(context, &Backend::square_sums_of_all, all, block);
  } else {
    for (const SquareSumsArgs& args : all) square_sums(context, args.x, block, args.out);
  }
}

void exact_sum(Context& context, const Tensor& x, const Tensor& state) {
  const Check check("exact_sum");
  check.dtype(x, "x", DType::f64);
  check.that(x.numel() < (std::int64_t{1} << 28), Check::describe(x, "x"), "fewer than 2^28");
  check.dtype(state, "state", DType::i64);
  check.count(state, "state", ExactSum::limbs + 1);
  launch(context, &Backend::exact_sum, x, state);
}

void fill_normal(Context& context, const NormalArgs& args) {
  const Check check("fill_normal");
  check.compute_dtype(args.x, "x");
  const int rank = args.x.shape().rank();
  check.that(rank == 1 || rank == 2, Check::describe(args.x, "x"), "1 or 2 dimensions");
  launch(context, &Backend::fill_normal, args);
}

}  // namespace trident
