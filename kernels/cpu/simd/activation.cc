#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

constexpr int vectors = W == 16 ? 4 : 2;  // vectors in a pack: as many as the registers hold

// 1 / (1 + exp(x)) and its complement, both without cancellation. x is the negated argument of the
// sigmoid.
template <class V>
struct Sigmoid {
  V value, complement;
};
template <class V>
TRIDENT_INLINE Sigmoid<V> sigmoid_of_negated(const V& x) {
  const V e = exp(min(splat(80.0f), x));  // finite, or NaN if x is NaN
  const V value = inverse(splat(1.0f) + e);
  return {value, e * value};
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x³).
constexpr float root_two_over_pi = 0.79788456080286535588f;
constexpr float cubic = 0.044715f;

// Beyond ±100 the sigmoid no longer changes; the clamp keeps x³ from overflowing.
template <class V>
TRIDENT_INLINE V within_100(const V& x) {  // NaN if x is NaN
  return max(splat(-100.0f), min(splat(100.0f), x));
}
template <class V>
TRIDENT_INLINE V gelu_exponent(const V& x) {  // -2u
  return splat(-2 * root_two_over_pi) * x * fma(splat(cubic), x * x, splat(1.0f));
}

template <class T>
void gelu_forward(const T* x, T* y, std::int64_t n) {
  each_pack<vectors>(n, [=](std::int64_t i, auto lanes) {
    const auto a = load(x + i, lanes);
    store(y + i, a * sigmoid_of_negated(gelu_exponent(within_100(a))).value, lanes);
  });
}

template <class T>
void gelu_backward(const T* x, const T* grad_y, T* grad_x, std::int64_t n) {
  each_pack<vectors>(n, [=](std::int64_t i, auto lanes) {
    const auto a = within_100(load(x + i, lanes));
    const auto s = sigmoid_of_negated(gelu_exponent(a));
    const auto slope =
        splat(2 * root_two_over_pi) * fma(splat(3 * cubic), a * a, splat(1.0f));  // 2 du/dx
    const auto derivative = fma(a * s.complement * slope, s.value, s.value);
    store(grad_x + i, load(grad_y + i, lanes) * derivative, lanes);
  });
}

template <class T>
void swiglu_forward(const T* gate, const T* up, T* y, std::int64_t n) {
  each_pack<vectors>(n, [=](std::int64_t i, auto lanes) {
    const auto g = load(gate + i, lanes);
    store(y + i, g * sigmoid_of_negated(-g).value * load(up + i, lanes), lanes);
  });
}

template <class T>
void swiglu_backward(const T* gate, const T* up, const T* grad_y, T* grad_gate, T* grad_up,
                     std::int64_t n) {
  each_pack<vectors>(n, [=](std::int64_t i, auto lanes) {
    const auto g = load(gate + i, lanes), u = load(up + i, lanes), dy = load(grad_y + i, lanes);
    const auto s = sigmoid_of_negated(-g);
    const auto silu = g * s.value;
    store(grad_up + i, dy * silu, lanes);
    store(grad_gate + i, dy * u * fma(silu, s.complement, s.value), lanes);
  });
}

template <class T>
void weighted_swiglu(const T* gate, const T* up, float weight, T* y, std::int64_t n) {
  each_pack<vectors>(n, [=](std::int64_t i, auto lanes) {
    const auto g = load(gate + i, lanes);
    store(y + i, g * sigmoid_of_negated(-g).value * load(up + i, lanes) * splat(weight), lanes);
  });
}

template <class T>
float weighted_swiglu_backward(const T* gate, const T* up, float weight, const T* grad_y,
                               T* grad_gate, T* grad_up, T* y, std::int64_t n) {
  F total{};
  each_pack<vectors>(n, [&](std::int64_t i, auto lanes) {
    const auto g = load(gate + i, lanes), u = load(up + i, lanes), dy = load(grad_y + i, lanes);
    const auto s = sigmoid_of_negated(-g);
    const auto silu = g * s.value;
    const auto product = silu * u, scaled = dy * splat(weight);
    total += sum_parts(only(dy * product, lanes));
    store(y + i, product * splat(weight), lanes);
    store(grad_up + i, scaled * silu, lanes);
    store(grad_gate + i, scaled * u * fma(silu, s.complement, s.value), lanes);
  });
  return sum_lanes(total);
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.gelu_forward = gelu_forward<T>;
  leaves.gelu_backward = gelu_backward<T>;
  leaves.swiglu_forward = swiglu_forward<T>;
  leaves.swiglu_backward = swiglu_backward<T>;
  leaves.weighted_swiglu = weighted_swiglu<T>;
  leaves.weighted_swiglu_backward = weighted_swiglu_backward<T>;
}

}  // namespace

void set_activation(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
