#include "kernels/activation.h"

#include "kernels/backend.h"
#include "kernels/check.h"

namespace trident {
namespace {

void check_like(const Check& check, const Tensor& x, const char* name, const Tensor& like) {
  check.dtype(x, name, like.dtype());
  check.count(x, name, like.numel());
}

// Checks x (T, 2F) and `half`, which has the shape (T, F).
void check_half(const Check& check, const Tensor& half, const char* name, const Tensor& x) {
  check.compute_dtype(x, "x");
  check.rank(x, "x", 2);
  check.that(x.dim(1) % 2 == 0, Check::describe(x, "x"), "an even number of columns");
  check.dtype(half, name, x.dtype());
  check.shape(half, name, {x.dim(0), x.dim(1) / 2});
}

}  // namespace

void gelu_forward(Context& context, const Tensor& x, const Tensor& y) {
  const Check check("gelu_forward");
  check.compute_dtype(x, "x");
  check_like(check, y, "y", x);
  launch(context, &Backend::gelu_forward, x, y);
}

void gelu_backward(Context& context, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x) {
  const Check check("gelu_backward");
  check.compute_dtype(x, "x");
  check_like(check, grad_y, "grad_y", x);
  check_like(check, grad_x, "grad_x", x);
  launch(context, &Backend::gelu_backward, x, grad_y, grad_x);
}

void swiglu_forward(Context& context, const Tensor& x, const Tensor& y) {
  check_half(Check("swiglu_forward"), y, "y", x);
  launch(context, &Backend::swiglu_forward, x, y);
}

void swiglu_backward(Context& context, const Tensor& x, const Tensor& grad_y,
                     const Tensor& grad_x) {
  const Check check("swiglu_backward");
  check_half(check, grad_y, "grad_y", x);
  check.dtype(grad_x, "grad_x", x.dtype());
  check.shape(grad_x, "grad_x", x.shape());
  launch(context, &Backend::swiglu_backward, x, grad_y, grad_x);
}

}  // namespace trident
