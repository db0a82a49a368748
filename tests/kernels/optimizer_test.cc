#include "kernels/optimizer.h"

#include "tests/kernels/reference.h"
#include "tests/kernels/setup.h"

namespace trident {
namespace {

using OptimizerTest = KernelTest;

TEST_P(OptimizerTest, AdamWFollowsTheReferenceOverSteps) {
  for (const std::int64_t n : {1, 3, 17, 257, 70001}) {
    Values w = random_of(DType::f32, n, "w"), m = reference::zeros(n), v = m;
    const Tensor weight = put_as(DType::f32, w, {n}), m1 = put_as(DType::f32, m, {n}),
                 m2 = put_as(DType::f32, v, {n});
    const Tensor model =
        dtype == DType::bf16 ? context.empty({n}, DType::bf16, Category::parameter) : Tensor();
    const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6, decay = 0.1, clip = 0.5;
    for (int step = 1; step <= 5; ++step) {
      const Values g = random_of(DType::f32, n, "g" + std::to_string(step), 1e-2);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double gradient = clip * g[i];
        w[i] -= lr * decay * w[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        w[i] -= lr * m[i] / (1 - std::pow(beta1, step)) /
                (std::sqrt(v[i] / (1 - std::pow(beta2, step))) + epsilon);
      }
      adamw(context, {.weight = weight,
                      .gradient = put_as(DType::f32, g, {n}),
                      .moment1 = m1,
                      .moment2 = m2,
                      .model_weight = model,
                      .learning_rate = lr,
                      .beta1 = beta1,
                      .beta2 = beta2,
                      .epsilon = epsilon,
                      .weight_decay = decay,
                      .gradient_scale = static_cast<float>(clip),
                      .step = step});
    }
    expect_near(weight, w, "weight", 5e-7);
    expect_near(m1, m, "moment1", 5e-7);
    expect_near(m2, v, "moment2", 5e-7);
    if (model) {
      const auto got = context.to_host<BFloat16>(model);
      const auto exact = context.to_host<float>(weight);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].bits, BFloat16(exact[i]).bits);
      }
    }
  }
}

TEST_P(OptimizerTest, SgdFollowsTheReferenceOverSteps) {
  const std::int64_t n = 257;
  for (const double momentum : {0.0, 0.9}) {
    Values w = random_of(DType::f32, n, "w"), buffer = reference::zeros(n);
    const Tensor weight = put_as(DType::f32, w, {n});
    // What the buffer held before the first step does not matter.
    const Tensor kept = momentum > 0 ? put_as(DType::f32, Values(w.size(), NAN), {n}) : Tensor();
    for (int step = 1; step <= 4; ++step) {
      const Values g = random_of(DType::f32, n, "g" + std::to_string(step));
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] -= 0.01 * 0.1 * w[i];
        buffer[i] = momentum * buffer[i] + g[i];
        w[i] -= 0.01 * buffer[i];
      }
      sgd(context, {.weight = weight,
                    .gradient = put_as(DType::f32, g, {n}),
                    .momentum_buffer = kept,
                    .learning_rate = 0.01,
                    .momentum = momentum,
                    .weight_decay = 0.1,
                    .step = step});
    }
    expect_near(weight, w, "weight", 5e-7);
    if (kept) expect_near(kept, buffer, "buffer", 5e-7);
  }
}

TEST_P(OptimizerTest, RefusesMomentumWithoutABuffer) {
  const Tensor x = empty_f32({3});
  EXPECT_THROW(sgd(context, {.weight = x, .gradient = x, .momentum = 0.9}), Error);
  EXPECT_THROW(
      adamw(context, {.weight = x, .gradient = x, .moment1 = x, .moment2 = empty_f32({4})}), Error);
}

TRIDENT_KERNEL_SUITE(OptimizerTest);

}  // namespace
}  // namespace trident
