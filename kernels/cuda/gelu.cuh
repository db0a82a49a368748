// GELU in its tanh form, and the logistic function, without cancellation for large positive or
// negative arguments.
#pragma once

#include <cuda_runtime.h>

namespace trident::cuda {

// 1 / (1 + exp(x)) and its complement. x is the negated argument of the sigmoid; NaN stays NaN. T
// is the element type: for 16 bits __expf, with an error within 2^-17, is accurate enough.
// __fdividef needs a divisor below 2^126.
struct Sigmoid {
  float value, complement;
};
template <class T>
__device__ inline Sigmoid sigmoid_of_negated(float x) {
  const float limited = x > 80.0f ? 80.0f : x;
  const float e = sizeof(T) < 4 ? __expf(limited) : expf(limited);
  const float value = __fdividef(1.0f, 1.0f + e);
  return {value, e * value};
}

// 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x³). Beyond ±100 the sigmoid
// no longer changes; the clamp keeps x³ from overflowing.
__device__ inline float within_100(float x) {
  return x > 100.0f ? 100.0f : x < -100.0f ? -100.0f : x;
}
inline constexpr float root_two_over_pi = 0.79788456080286535588f;
inline constexpr float gelu_cubic = 0.044715f;

template <class T>
__device__ inline Sigmoid gelu_sigmoid(float a) {
  return sigmoid_of_negated<T>(-2 * root_two_over_pi * a * fmaf(gelu_cubic, a * a, 1.0f));
}
template <class T>
__device__ inline float gelu(float x) {
  return x * gelu_sigmoid<T>(within_100(x)).value;
}
template <class T>
__device__ inline float gelu_derivative(float x) {
  const float a = within_100(x);
  const Sigmoid s = gelu_sigmoid<T>(a);
  const float slope = 2 * root_two_over_pi * fmaf(3 * gelu_cubic, a * a, 1.0f);  // 2 du/dx
  return fmaf(a * s.complement * slope, s.value, s.value);
}

}  // namespace trident::cuda
