// One row times a matrix that is stored by columns, as a model's weights are: each of them is read
// once, so its speed is the memory's. Each element's sum has an order of its own, whoever computes
// it.
#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

// R rows of w at a time, with two sums each, so that enough loads are on their way.
template <int R, class T>
TRIDENT_INLINE void some_products(const float* x, const T* w, std::int64_t w_row, std::int64_t k,
                                  float* y) {
  F even[R] = {}, odd[R] = {};
  std::int64_t p = 0;
  for (; p + 2 * W <= k; p += 2 * W) {
    const F first = load(x + p), second = load(x + p + W);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const T* const from = w + i * w_row + p;
      __builtin_prefetch(from + R * w_row);
      even[i] = fma(first, load(from), even[i]);
      odd[i] = fma(second, load(from + W), odd[i]);
    }
  }
  each(k - p, [&](std::int64_t at, auto lanes) {
    const F rest = load(x + p + at, lanes);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) even[i] = fma(rest, load(w + i * w_row + p + at, lanes), even[i]);
  });
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) y[i] = sum_lanes(even[i] + odd[i]);
}

template <class T>
void row_products(const float* x, const T* w, std::int64_t w_row, std::int64_t rows, std::int64_t k,
                  float* y) {
  constexpr int R = 4;
  std::int64_t i = 0;
  for (; i + R <= rows; i += R) some_products<R>(x, w + i * w_row, w_row, k, y + i);
  for (; i < rows; ++i) some_products<1>(x, w + i * w_row, w_row, k, y + i);
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.row_products = row_products<T>;
}

}  // namespace

void set_row_products(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
