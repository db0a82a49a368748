#include "kernels/cpu/simd/dropout.h"

#include "kernels/cpu/simd/leaves.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

template <class T>
void dropout_add(const Dropout& dropout, std::uint64_t sample, std::uint64_t first, const T* x,
                 const T* residual, T* y, std::int64_t n) {
  constexpr std::int64_t part = 512;
  float factors[part];
  for (std::int64_t begin = 0; begin < n; begin += part) {
    const std::int64_t count = n - begin < part ? n - begin : part;
    dropout_factors(dropout, sample, first + static_cast<std::uint64_t>(begin), count, factors);
    each(count, [&](std::int64_t i, auto lanes) {
      F v = load(x + begin + i, lanes) * load(factors + i);
      if (residual) v += load(residual + begin + i, lanes);
      store(y + begin + i, v, lanes);
    });
  }
}

template <class T>
void rotate(T* first, T* second, const float* cosine, const float* sine, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    const F a = load(first + i, lanes), b = load(second + i, lanes);
    const F c = load(cosine + i, lanes), s = load(sine + i, lanes);
    store(first + i, fma(-b, s, a * c), lanes);
    store(second + i, fma(a, s, b * c), lanes);
  });
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.dropout_add = dropout_add<T>;
  leaves.rotate = rotate<T>;
}

}  // namespace

void set_dropout(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
