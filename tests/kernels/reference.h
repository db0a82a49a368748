// Naive fp64 references of the kernels, written as their definitions, and numeric gradients.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <span>
#include <vector>

#include "core/rng.h"
#include "kernels/attention.h"
#include "kernels/rotary.h"

namespace trident::reference {

using Values = std::vector<double>;
using Index = std::int64_t;

inline double& at(Values& x, Index i) {
  return x[static_cast<std::size_t>(i)];
}
inline double at(const Values& x, Index i) {
  return x[static_cast<std::size_t>(i)];
}
// n elements from element i on, for loops that a check of each element would slow down.
inline const double* from(const Values& x, Index i, Index n) {
  return std::span(x).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(n)).data();
}
inline double dot(const Values& x, Index i, const Values& y, Index j, Index n) {
  const double *a = from(x, i, n), *b = from(y, j, n);
  double sum = 0;
  for (Index k = 0; k < n; ++k) sum += a[k] * b[k];
  return sum;
}
// n elements of y from element i on += factor · those of x from element j on.
inline void add_scaled(Values& y, Index i, double factor, const Values& x, Index j, Index n) {
  const double* a = from(x, j, n);
  double* b = std::span(y).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(n)).data();
  for (Index k = 0; k < n; ++k) b[k] += factor * a[k];
}
inline Values zeros(Index n) {
  return Values(static_cast<std::size_t>(n), 0.0);
}

// d f / d x by central differences, where f is the dot product of forward(x) with grad_y.
inline Values numeric_gradient(const std::function<Values(const Values&)>& forward, Values x,
                               const Values& grad_y) {
  constexpr double h = 1e-5;
  const auto dot = [&](const Values& y) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * grad_y[i];
    return sum;
  };
  Values gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double up = dot(forward(x));
    x[i] = kept - h;
    gradient[i] = (up - dot(forward(x))) / (2 * h);
    x[i] = kept;
  }
  return gradient;
}

// c[m, n] = op(a) op(b)
inline Values gemm(const Values& a, const Values& b, Index m, Index n, Index k, bool transpose_a,
                   bool transpose_b) {
  Values c = zeros(m * n);
  for (Index i = 0; i < m; ++i) {
    for (Index p = 0; p < k; ++p) {
      const double value = transpose_a ? at(a, p * m + i) : at(a, i * k + p);
      for (Index j = 0; j < n; ++j) {
        at(c, i * n + j) += value * (transpose_b ? at(b, j * k + p) : at(b, p * n + j));
      }
    }
  }
  return c;
}

// LayerNorm, or RMSNorm if there is no bias; x (T, H).
inline Values norm(const Values& x, const Values& weight, const Values& bias, double epsilon) {
  const auto columns = static_cast<Index>(weight.size());
  const Index rows = static_cast<Index>(x.size()) / columns;
  Values y = zeros(rows * columns);
  for (Index t = 0; t < rows; ++t) {
    double mean = 0, squares = 0;
    for (Index i = 0; i < columns; ++i) mean += at(x, t * columns + i) / double(columns);
    if (bias.empty()) mean = 0;
    for (Index i = 0; i < columns; ++i) {
      squares += std::pow(at(x, t * columns + i) - mean, 2) / double(columns);
    }
    for (Index i = 0; i < columns; ++i) {
      at(y, t * columns + i) =
          (at(x, t * columns + i) - mean) / std::sqrt(squares + epsilon) * at(weight, i) +
          (bias.empty() ? 0 : at(bias, i));
    }
  }
  return y;
}

inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// x (T, 2F): gate, then up.
inline Values swiglu(const Values& x, Index f) {
  Values y;
  for (Index t = 0; t < static_cast<Index>(x.size()) / (2 * f); ++t) {
    for (Index i = 0; i < f; ++i) {
      const double gate = at(x, t * 2 * f + i);
      y.push_back(gate / (1 + std::exp(-gate)) * at(x, t * 2 * f + f + i));
    }
  }
  return y;
}

// 0 or 1 / (1 - p), by the formula of kernels/dropout.h.
inline double dropout_factor(double probability, std::uint64_t key, std::uint64_t sample,
                             std::uint64_t element) {
  if (probability == 0) return 1;
  const std::uint64_t block = element / 4;
  const auto words =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
              static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)},
             {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  return words[element % 4] >= probability * 4294967296.0 ? 1 / (1 - probability) : 0;
}

// Attention of `shape` over a row of A query heads, G key heads and G value heads for each
// position. Its queries are those at positions query_begin … query_begin + S - 1 of K, so that K =
// S and query_begin = 0 is plain self-attention.
struct Attention {
  AttentionShape shape;
  double probability = 0;  // of dropout
  std::uint64_t key = 0;
  std::vector<std::int64_t> samples = {};
  Index head_offset = 0;
  Index query_begin = 0, window = 0;
  std::vector<Index> document_begins = {};  // (B, K)
  Values sinks = {};                        // (A)

  double factor(Index b, Index head, Index i, Index j) const {
    if (probability == 0) return 1;
    const Index s = shape.keys();
    return dropout_factor(probability, key,
                          static_cast<std::uint64_t>(samples[static_cast<std::size_t>(b)]),
                          static_cast<std::uint64_t>(((head_offset + head) * s + i) * s + j));
  }
  // Offset within qkv of element 0 of a head: kind 0 query, 1 key, 2 value.
  Index offset(Index b, Index t, Index head, int kind) const {
    const Index group = head / (shape.heads / shape.groups), d = shape.head_dim;
    const Index column = kind == 0   ? head * d
                         : kind == 1 ? (shape.heads + group) * d
                                     : (shape.heads + shape.groups) * d + group * shape.value_dim();
    return (b * shape.keys() + t) * shape.row() + column;
  }
  bool sees(Index b, Index i, Index j) const {
    if (j > i || (window > 0 && j <= i - window)) return false;
    const auto at = static_cast<std::size_t>(b * shape.keys() + i);
    return document_begins.empty() || j >= document_begins[at];
  }
  // The probabilities (before dropout) of the query at position i over the keys 0 … i, and the log
  // of their sum.
  Values probabilities(const Values& qkv, Index b, Index head, Index i, double* log_sum) const {
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    Values p;
    double largest = sinks.empty() ? -INFINITY : at(sinks, head);
    for (Index j = 0; j <= i; ++j) {
      const double score =
          dot(qkv, offset(b, i, head, 0), qkv, offset(b, j, head, 1), shape.head_dim);
      p.push_back(sees(b, i, j) ? score * scale : -INFINITY);
      largest = std::max(largest, p.back());
    }
    double total = sinks.empty() ? 0 : std::exp(at(sinks, head) - largest);
    for (double& x : p) total += x = std::exp(x - largest);
    for (double& x : p) x /= total;
    if (log_sum) *log_sum = largest + std::log(total);
    return p;
  }

  // Calls f(sample, head, position, offset of its first output element).
  template <class F>
  void for_each_query(F f) const {
    for (Index b = 0; b < shape.batch; ++b) {
      for (Index head = 0; head < shape.heads; ++head) {
        for (Index i = 0; i < shape.sequence; ++i) {
          f(b, head, query_begin + i,
            ((b * shape.sequence + i) * shape.heads + head) * shape.value_dim());
        }
      }
    }
  }

  Values forward(const Values& qkv, Values* log_sum_exp = nullptr) const {
    Values y = zeros(shape.batch * shape.sequence * shape.out_row());
    for_each_query([&](Index b, Index head, Index i, Index out) {
      double log_sum = 0;
      const Values p = probabilities(qkv, b, head, i, &log_sum);
      if (log_sum_exp) log_sum_exp->push_back(log_sum);
      for (Index j = 0; j <= i; ++j) {
        add_scaled(y, out, at(p, j) * factor(b, head, i, j), qkv, offset(b, j, head, 2),
                   shape.value_dim());
      }
    });
    return y;
  }

  // The gradient of qkv; of the sinks too if grad_sinks is given.
  Values backward(const Values& qkv, const Values& grad_out, Values* grad_sinks = nullptr) const {
    const Index d = shape.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    Values grad = zeros(static_cast<Index>(qkv.size()));
    if (grad_sinks) *grad_sinks = zeros(shape.heads);
    for_each_query([&](Index b, Index head, Index i, Index out) {
      double log_sum = 0;
      const Values p = probabilities(qkv, b, head, i, &log_sum);
      Values dp;
      double mean = 0;
      for (Index j = 0; j <= i; ++j) {
        const Index value = offset(b, j, head, 2), e = shape.value_dim();
        const double kept = factor(b, head, i, j);
        dp.push_back(dot(grad_out, out, qkv, value, e) * kept);
        add_scaled(grad, value, at(p, j) * kept, grad_out, out, e);
        mean += at(p, j) * dp.back();
      }
      if (grad_sinks) at(*grad_sinks, head) -= std::exp(at(sinks, head) - log_sum) * mean;
      for (Index j = 0; j <= i; ++j) {
        const double ds = at(p, j) * (at(dp, j) - mean) * scale;
        add_scaled(grad, offset(b, i, head, 0), ds, qkv, offset(b, j, head, 1), d);
        add_scaled(grad, offset(b, j, head, 1), ds, qkv, offset(b, i, head, 0), d);
      }
    });
    return grad;
  }
};

}  // namespace trident::reference
