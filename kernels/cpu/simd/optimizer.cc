#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

template <class Lanes>
TRIDENT_INLINE void store_model(ModelWeight model, std::int64_t i, F w, Lanes lanes) {
  if (model.bf16) store(model.bf16 + i, w, lanes);
  if (model.f16) store(model.f16 + i, w, lanes);
}

template <class T>
void adam(const AdamStep& step, float* weight, const T* gradient, float* moment1, float* moment2,
          ModelWeight model, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    const F before = load(weight + i, lanes);
    F g = load(gradient + i, lanes) * splat(step.gradient_scale);
    if (step.decay_in_gradient != 0) g = fma(before, splat(step.decay_in_gradient), g);
    const F m = fma(load(moment1 + i, lanes), splat(step.beta1), g * splat(step.one_minus_beta1));
    const F v =
        fma(load(moment2 + i, lanes), splat(step.beta2), g * g * splat(step.one_minus_beta2));
    const F root = fma(square_root(v), splat(step.inverse_root_correction2), splat(step.epsilon));
    const F w = before * splat(step.decay) - splat(step.step_size) * m / root;
    store(moment1 + i, m, lanes);
    store(moment2 + i, v, lanes);
    store(weight + i, w, lanes);
    store_model(model, i, w, lanes);
  });
}

template <class T>
void sgd(const SgdStep& step, float* weight, const T* gradient, float* buffer, ModelWeight model,
         std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    F g = load(gradient + i, lanes) * splat(step.gradient_scale);
    if (buffer) {
      if (!step.first) g = fma(load(buffer + i, lanes), splat(step.momentum), g);
      store(buffer + i, g, lanes);
    }
    const F w = load(weight + i, lanes) * splat(step.decay) - splat(step.learning_rate) * g;
    store(weight + i, w, lanes);
    store_model(model, i, w, lanes);
  });
}

TRIDENT_INLINE double sum_of(D x) {
  double sum = 0;
  for (int i = 0; i < W / 2; ++i) sum += x[i];
  return sum;
}

template <class T>
double adafactor_squares(const T* gradient, float scale, double* columns, std::int64_t n) {
  D sums{};
  each(n, [&](std::int64_t i, auto lanes) {
    const F g = load(gradient + i, lanes) * splat(scale);
    const D a = low(g) * low(g), b = high(g) * high(g);
    sums += a + b;
    if (!columns) return;
    const std::int64_t count = n - i < W ? n - i : W;
    for (std::int64_t j = 0; j < count; ++j) {
      columns[i + j] += j < W / 2 ? a[j] : b[j - W / 2];
    }
  });
  return sum_of(sums);
}

// Returns gradient / sqrt(variance).
template <class T, class Lanes>
TRIDENT_INLINE F adafactor_direction(const AdafactorStep& step, const T* gradient, float row,
                                     const float* column, std::int64_t i, Lanes lanes) {
  const F variance = max(splat(row) * load(column + i, lanes), splat(step.smallest));
  return load(gradient + i, lanes) * splat(step.gradient_scale) / square_root(variance);
}

template <class T>
double adafactor_size(const AdafactorStep& step, const T* gradient, float row, const float* column,
                      std::int64_t n) {
  D sums{};
  each(n, [&](std::int64_t i, auto lanes) {
    const F u = adafactor_direction(step, gradient, row, column, i, lanes);
    sums += low(u) * low(u) + high(u) * high(u);
  });
  return sum_of(sums);
}

template <class T>
void adafactor_update(const AdafactorStep& step, float* weight, const T* gradient, float row,
                      const float* column, ModelWeight model, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    const F u = adafactor_direction(step, gradient, row, column, i, lanes);
    const F w = load(weight + i, lanes) * splat(step.decay) - splat(step.step_size) * u;
    store(weight + i, w, lanes);
    store_model(model, i, w, lanes);
  });
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.adam = adam<T>;
  leaves.sgd = sgd<T>;
  leaves.adafactor_squares = adafactor_squares<T>;
  leaves.adafactor_size = adafactor_size<T>;
  leaves.adafactor_update = adafactor_update<T>;
}

}  // namespace

void set_optimizer(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
