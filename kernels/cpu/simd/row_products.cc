// One row times a matrix that is stored by columns, as the weights of a model are. Each weight is
// read once, so memory bandwidth limits the speed. The order of additions of an element is fixed:
// it does not depend on the thread that computes the element.
#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

// Handles R rows of w at a time, with two sums each, so that enough loads are in flight.
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
