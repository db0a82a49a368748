#include "kernels/cpu/simd/leaves.h"
#include "kernels/cpu/simd/pack.h"

namespace trident::cpu::simd::TRIDENT_ISA {
namespace {

constexpr int chains = 4;  // independent sums, to hide the latency of addition

// The sum over [0, n) of term(i, lanes), which must be 0 in lanes beyond n.
template <class Term>
TRIDENT_INLINE float row_sum(std::int64_t n, Term term) {
  F sums[chains] = {};
  std::int64_t i = 0;
  for (; i + chains * W <= n; i += chains * W) {
    for (int c = 0; c < chains; ++c) sums[c] += term(i + c * W, All{});
  }
  for (int c = 0; i < n; i += W, ++c) {
    sums[c] += n - i >= W ? term(i, All{}) : term(i, Some{n - i});
  }
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T>
void norm_forward(const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                  std::int64_t n, float epsilon) {
  const float count = static_cast<float>(n);
  float center = 0;
  if (bias)
    center = row_sum(n, [=](std::int64_t i, auto lanes) { return load(x + i, lanes); }) / count;
  const F m = splat(center);
  const float squares = row_sum(n, [=](std::int64_t i, auto lanes) {
    const F d = only(load(x + i, lanes) - m, lanes);
    return d * d;
  });
  const float scale = 1.0f / __builtin_sqrtf(squares / count + epsilon);
  const F s = splat(scale);
  if (bias) {
    each(n, [=](std::int64_t i, auto lanes) {
      const F normal = (load(x + i, lanes) - m) * s;
      store(y + i, fma(normal, load(weight + i, lanes), load(bias + i, lanes)), lanes);
    });
    *mean = center;
  } else {
    each(n, [=](std::int64_t i, auto lanes) {
      store(y + i, load(x + i, lanes) * s * load(weight + i, lanes), lanes);
    });
  }
  *rstd = scale;
}

// grad_x = rstd · (g - mean(g) - h·mean(g·h)) with g = grad_y·weight and h the normalised row.
// RMSNorm omits mean(g).
template <class T>
void norm_backward(const T* grad_y, const T* x, const T* weight, const float* mean, float rstd,
                   const T* residual, T* grad_x, std::int64_t n) {
  const float inverse = 1.0f / static_cast<float>(n);
  const F m = splat(mean ? *mean : 0.0f), s = splat(rstd);
  float along_one = 0;
  if (mean) {
    along_one = inverse * row_sum(n, [=](std::int64_t i, auto lanes) {
                  return load(grad_y + i, lanes) * load(weight + i, lanes);
                });
  }
  const float along_row =
      inverse * row_sum(n, [=](std::int64_t i, auto lanes) {
        return load(grad_y + i, lanes) * load(weight + i, lanes) * ((load(x + i, lanes) - m) * s);
      });
  const F one = splat(along_one), row = splat(along_row);
  each(n, [=](std::int64_t i, auto lanes) {
    const F h = (load(x + i, lanes) - m) * s;
    const F g = load(grad_y + i, lanes) * load(weight + i, lanes);
    F d = s * (fma(-h, row, g) - one);
    if (residual) d += load(residual + i, lanes);
    store(grad_x + i, d, lanes);
  });
}

// Rows are added in groups of eight, as in column_sums.
template <class T>
void norm_weight(Rows<const T> grad_y, Rows<const T> x, const float* mean, const float* rstd,
                 std::int64_t rows, std::int64_t columns, float* grad_weight, float* grad_bias) {
  constexpr std::int64_t panel = 16 * W;
  for (std::int64_t begin = 0; begin < columns; begin += panel) {
    const std::int64_t width = columns - begin < panel ? columns - begin : panel;
    float weight_sums[panel] = {}, bias_sums[panel] = {};
    for (std::int64_t t = 0; t < rows; t += 8) {
      const std::int64_t end = t + 8 < rows ? t + 8 : rows;
      each(width, [&](std::int64_t i, auto lanes) {
        F weight_sum{}, bias_sum{};
        for (std::int64_t r = t; r < end; ++r) {
          const F g = load(grad_y.at(r) + begin + i, lanes);
          const F v = load(x.at(r) + begin + i, lanes);
          const F h = (v - splat(mean ? mean[r] : 0.0f)) * splat(rstd[r]);
          weight_sum = fma(g, h, weight_sum);
          bias_sum += g;
        }
        store(weight_sums + i, load(weight_sums + i) + weight_sum);
        store(bias_sums + i, load(bias_sums + i) + bias_sum);
      });
    }
    each(width, [&](std::int64_t i, auto lanes) {
      float* w = grad_weight + begin + i;
      store(w, load(w, lanes) + load(weight_sums + i), lanes);
      if (grad_bias) {
        float* b = grad_bias + begin + i;
        store(b, load(b, lanes) + load(bias_sums + i), lanes);
      }
    });
  }
}

template <class T>
void set(Leaves<T>& leaves) {
  leaves.norm_forward = norm_forward<T>;
  leaves.norm_backward = norm_backward<T>;
  leaves.norm_weight = norm_weight<T>;
}

}  // namespace

void set_norm(Table& table) {
  set(table.f32);
  set(table.bf16);
  set(table.f16);
}

}  // namespace trident::cpu::simd::TRIDENT_ISA
