#include "kernels/activation.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using ActivationTest = KernelTest;
constexpr std::int64_t sizes[] = {1, 3, 17, 65, 257};

TEST_P(ActivationTest, GeluAndItsGradientMatchTheReference) {
  for (const std::int64_t n : sizes) {
    const Values x = random(3 * n, "x", 2), grad = random(3 * n, "grad");
    Values want, want_grad;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-6;
      want.push_back(reference::gelu(x[i]));
      want_grad.push_back(grad[i] * (reference::gelu(x[i] + h) - reference::gelu(x[i] - h)) /
                          (2 * h));
    }
    const Tensor in = put(x, {3, n}), y = empty({3, n}), over = put(grad, {3, n});
    gelu_forward(context, in, y);
    expect_near(y, want, "y", dtype == DType::f32 ? 5e-7 : tolerance);
    gelu_backward(context, in, over, over);  // in place
    expect_near(over, want_grad, "grad_x", dtype == DType::f32 ? 1e-6 : tolerance);
  }
}

TEST_P(ActivationTest, GeluIsRightAtTheEndsAndKeepsNaN) {
  const Values x = {0, -0.0, 1e-8, 1e-3, -1e-3, 30, -30, 1e5, -1e5, 1e30, -1e30, NAN};
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const Tensor in = put_as(DType::f32, x, shape), y = empty_f32(shape), grad = empty_f32(shape);
  gelu_forward(context, in, y);
  gelu_backward(context, in, put_as(DType::f32, Values(x.size(), 1.0), shape), grad);
  const Values got = get(y), slope = get(grad);
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    EXPECT_NEAR(got[i], reference::gelu(x[i]), 1e-6 * std::abs(x[i])) << x[i];
    EXPECT_NEAR(slope[i], x[i] > 1 ? 1 : x[i] < -1 ? 0 : 0.5 + x[i] * 0.79788456, 1e-6) << x[i];
  }
  EXPECT_TRUE(std::isnan(got.back()));
  EXPECT_TRUE(std::isnan(slope.back()));
}

TEST_P(ActivationTest, SwigluAndItsGradientMatchTheReference) {
  for (const std::int64_t f : sizes) {
    const Values x = random(3 * 2 * f, "x", 2), grad = random(3 * f, "grad");
    const auto forward = [&](const Values& v) { return reference::swiglu(v, f); };
    const Tensor in = put(x, {3, 2 * f}), y = empty({3, f}), grad_x = empty({3, 2 * f});
    swiglu_forward(context, in, y);
    expect_near(y, forward(x), "y", dtype == DType::f32 ? 5e-7 : tolerance);
    swiglu_backward(context, in, put(grad, {3, f}), grad_x);
    expect_near(grad_x, reference::numeric_gradient(forward, x, grad), "grad_x");
  }
}

TEST_P(ActivationTest, RefusesWrongShapes) {
  EXPECT_THROW(swiglu_forward(context, empty({3, 5}), empty({3, 2})), Error);
  EXPECT_THROW(swiglu_backward(context, empty({3, 4}), empty({3, 4}), empty({3, 4})), Error);
  EXPECT_THROW(gelu_forward(context, empty({3}), empty({4})), Error);
}

TRIDENT_KERNEL_SUITE(ActivationTest);

}  // namespace
}  // namespace trident
