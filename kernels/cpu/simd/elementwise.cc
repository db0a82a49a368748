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

// Rows are added in eights, and the eights to the total: short chains, a fixed order.
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

// Lane j adds elements j, j + 16, …; the lanes are then added in halves.
double square_sum(const float* x, std::int64_t n) {
  constexpr int vectors = 16 / W, half = W / 2;
  D sums[2 * vectors] = {};
  const auto step = [&](const float* p, int v) {
    const D a = low(load(p)), b = high(load(p));
    sums[2 * v] += a * a;
    sums[2 * v + 1] += b * b;
  };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int v = 0; v < vectors; ++v) step(x + i + v * W, v);
  }
  float rest[16] = {};
  for (std::int64_t j = i; j < n; ++j) rest[j - i] = x[j];
  for (int v = 0; v < vectors; ++v) step(rest + v * W, v);
  double lane[16];
  for (int j = 0; j < 16; ++j) lane[j] = sums[j / half][j % half];
  for (int s = 8; s > 0; s /= 2) {
    for (int j = 0; j < s; ++j) lane[j] += lane[j + s];
  }
  return lane[0];
}

#if TRIDENT_ISA_WIDTH >= 8
void f16_to_f32(const Float16* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
  for (; i < n; ++i) y[i] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x[i].bits)));
}
void f32_to_f16(const float* x, Float16* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) {
    y[i].bits = static_cast<std::uint16_t>(
        _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x[i]), _MM_FROUND_TO_NEAREST_INT)));
  }
}
#else
void f16_to_f32(const Float16* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}
void f32_to_f16(const float* x, Float16* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = Float16(x[i]);
}
#endif

template <class T>
void set(Leaves<T>& leaves) {
  leaves.accumulate = accumulate<T, float>;
  leaves.accumulate_bf16 = accumulate<T, BFloat16>;
  leaves.add_bias = add_bias<T>;
  leaves.to_f32 = convert<T, float>;
  leaves.from_f32 = convert<float, T>;
  leaves.column_sums = column_sums<T>;
}

}  // namespace

void set_elementwise(Table& table) {
  set(table.f32);
  set(table.bf16);
  table.f16_to_f32 = f16_to_f32;
  table.f32_to_f16 = f32_to_f16;
  table.scale = scale;
  table.square_sum = square_sum;
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
