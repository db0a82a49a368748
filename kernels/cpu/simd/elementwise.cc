#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

template <class T, class U>
void accumulate(const T* x, U* y, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    store(y + i, load(y + i, lanes) + load(x + i, lanes), lanes);
  });
}

template <class T>
void add_bias(const T* x, const T* bias, T* y, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    store(y + i, load(x + i, lanes) + load(bias + i, lanes), lanes);
  });
}

template <class T, class U>
void convert(const T* x, U* y, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
}

// Rows are added in groups of eight, and the group sums to the total: short chains, in a fixed
// order.
template <class T>
void column_sums(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                 float* total) {
  constexpr std::int64_t panel = 16 * W;
  for (std::int64_t begin = 0; begin < columns; begin += panel) {
    const std::int64_t width = columns - begin < panel ? columns - begin : panel;
    float sums[panel] = {};
    for (std::int64_t t = 0; t < rows; t += 8) {
      const std::int64_t end = t + 8 < rows ? t + 8 : rows;
      each(width, [&](std::int64_t i, auto lanes) {
        F sum{};
        for (std::int64_t r = t; r < end; ++r) sum += load(x + r * stride + begin + i, lanes);
        store(sums + i, load(sums + i) + sum);
      });
    }
    accumulate(sums, total + begin, width);
  }
}

void scale(float* x, float factor, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    store(x + i, load(x + i, lanes) * splat(factor), lanes);
  });
}

void lerp(float* x, const float* target, float part, std::int64_t n) {
  each(n, [=](std::int64_t i, auto lanes) {
    const F from = load(x + i, lanes);
    store(x + i, fma(load(target + i, lanes) - from, splat(part), from), lanes);
  });
}

// Lane j adds elements j, j + 16, …; then halves of the lanes are added until one is left.
template <class T>
double square_sum(const T* x, std::int64_t n) {
  constexpr int vectors = 16 / W, half = W / 2;
  D sums[2 * vectors] = {};
  const auto step = [&](const auto* p, int v) {
    const D a = low(load(p)), b = high(load(p));
    sums[2 * v] += a * a;
    sums[2 * v + 1] += b * b;
  };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int v = 0; v < vectors; ++v) step(x + i + v * W, v);
  }
  float rest[16] = {};
  for (std::int64_t j = i; j < n; ++j) rest[j - i] = static_cast<float>(x[j]);
  for (int v = 0; v < vectors; ++v) step(rest + v * W, v);
  double lane[16];
  for (int j = 0; j < 16; ++j) lane[j] = sums[j / half][j % half];
  for (int s = 8; s > 0; s /= 2) {
    for (int j = 0; j < s; ++j) lane[j] += lane[j + s];
  }
  return lane[0];
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.accumulate = accumulate<T, float>;
  leaves.accumulate_bf16 = accumulate<T, BFloat16>;
  leaves.accumulate_f16 = accumulate<T, Float16>;
  leaves.add_bias = add_bias<T>;
  leaves.to_f32 = convert<T, float>;
  leaves.from_f32 = convert<float, T>;
  leaves.column_sums = column_sums<T>;
  leaves.square_sum = square_sum<T>;
}

}  // namespace

void set_elementwise(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
  table.scale = scale;
  table.lerp = lerp;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
