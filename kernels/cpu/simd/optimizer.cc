#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

void adamw(const AdamWStep& step, float* weight, const float* gradient, float* moment1,
           float* moment2, BFloat16* model_weight, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    const F g = load(gradient + i, lanes) * splat(step.gradient_scale);
    const F m = fma(load(moment1 + i, lanes), splat(step.beta1), g * splat(step.one_minus_beta1));
    const F v =
        fma(load(moment2 + i, lanes), splat(step.beta2), g * g * splat(step.one_minus_beta2));
    const F root = fma(square_root(v), splat(step.inverse_root_correction2), splat(step.epsilon));
    const F w = load(weight + i, lanes) * splat(step.decay) - splat(step.step_size) * m / root;
    store(moment1 + i, m, lanes);
    store(moment2 + i, v, lanes);
    store(weight + i, w, lanes);
    if (model_weight) store(model_weight + i, w, lanes);
  });
}

void sgd(const SgdStep& step, float* weight, const float* gradient, float* buffer,
         BFloat16* model_weight, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    F g = load(gradient + i, lanes) * splat(step.gradient_scale);
    if (buffer) {
      if (!step.first) g = fma(load(buffer + i, lanes), splat(step.momentum), g);
      store(buffer + i, g, lanes);
    }
    const F w = load(weight + i, lanes) * splat(step.decay) - splat(step.learning_rate) * g;
    store(weight + i, w, lanes);
    if (model_weight) store(model_weight + i, w, lanes);
  });
}

}  // namespace

void set_optimizer(Table& table) {
  table.adamw = adamw;
  table.sgd = sgd;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
