#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

// Ignores NaNs; they show up in the sums.
template <class T>
float maximum(const T* x, std::int64_t n) {
  const F lowest = splat(-__builtin_inff());
  F best = lowest;
  each(n, [&](std::int64_t i, auto lanes) {
    best = max(only(load(x + i, lanes), lanes, lowest), best);
  });
  return max_lanes(best);
}

template <class T>
void shifted_sums(const T* x, std::int64_t n, float maximum, float totals[2]) {
  const F m = splat(maximum);
  F exponentials{}, shifts{};
  each_pack<4>(n, [&](std::int64_t i, auto lanes) {
    const auto d = only(load(x + i, lanes) - m, lanes);
    exponentials += sum_parts(only(exp(d), lanes));
    shifts += sum_parts(d);
  });
  totals[0] = sum_lanes(exponentials);
  totals[1] = sum_lanes(shifts);
}

template <class T>
void softmax_gradient(T* x, std::int64_t n, float maximum, float total, float uniform,
                      float scale) {
  const F m = splat(maximum), inverse = splat(1.0f / total), u = splat(uniform), s = splat(scale);
  each_pack<4>(n, [=](std::int64_t i, auto lanes) {
    store(x + i, s * (exp(load(x + i, lanes) - m) * inverse - u), lanes);
  });
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.maximum = maximum<T>;
  leaves.shifted_sums = shifted_sums<T>;
  leaves.softmax_gradient = softmax_gradient<T>;
}

}  // namespace

void set_cross_entropy(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
