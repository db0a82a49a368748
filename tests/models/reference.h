// The transformer's modules as plain loops in fp64, forward only. Gradients are central
// differences. Only the sizes come from the library.
//
// B samples, S positions, T = B·S rows, H hidden, V vocabulary; all tensors are row-major and
// complete.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/transformer.h"

namespace trident::reference {

using Values = std::vector<double>;
using Weights = std::map<std::string, Values>;  // by parameter name, global values

struct Batch {
  std::size_t batch = 0, sequence = 0;
  std::vector<std::int32_t> tokens = {}, labels = {};  // (T)
  std::size_t rows() const { return batch * sequence; }
};

inline std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

inline const Values* find(const Weights& weights, const std::string& name) {
  const auto at = weights.find(name);
  return at == weights.end() ? nullptr : &at->second;
}

// y (T, out) = x (T, in) · weight (out, in)ᵀ + bias
inline Values linear(const Values& x, const Values& weight, const Values* bias, std::size_t in) {
  const std::size_t rows = x.size() / in, out = weight.size() / in;
  Values y(rows * out);
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias != nullptr ? (*bias)[o] : 0;
      // Most of the time of numeric gradients; the library would check each element.
      const double *a = &x[t * in], *b = &weight[o * in];
      for (std::size_t i = 0; i < in; ++i) sum += a[i] * b[i];
      y[t * out + o] = sum;
    }
  }
  return y;
}

// LayerNorm if there is a bias, else RMSNorm.
inline Values norm(const Values& x, const Weights& weights, const std::string& name,
                   const TransformerShape& shape) {
  const Values& weight = weights.at(name + ".weight");
  const Values* bias = find(weights, name + ".bias");
  const std::size_t hidden = weight.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += hidden) {
    double mean = 0, variance = 0;
    if (bias != nullptr) {
      for (std::size_t i = 0; i < hidden; ++i) mean += x[row + i];
      mean /= static_cast<double>(hidden);
    }
    for (std::size_t i = 0; i < hidden; ++i) {
      variance += (x[row + i] - mean) * (x[row + i] - mean);
    }
    variance /= static_cast<double>(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      y[row + i] = (x[row + i] - mean) / std::sqrt(variance + shape.norm_epsilon) * weight[i] +
                   (bias != nullptr ? (*bias)[i] : 0);
    }
  }
  return y;
}

// Rotates the pairs (i, i + D/2) of one head at `position`.
inline void rotate(double* head, std::size_t head_dim, std::size_t position,
                   const RotaryFrequencies& frequencies) {
  for (std::size_t i = 0; i < head_dim / 2; ++i) {
    const double angle =
        static_cast<double>(position) *
        frequencies.of(static_cast<std::int64_t>(i), static_cast<std::int64_t>(head_dim));
    const double cosine = std::cos(angle) * frequencies.amplitude;
    const double sine = std::sin(angle) * frequencies.amplitude;
    const double a = head[i], b = head[i + head_dim / 2];
    head[i] = a * cosine - b * sine;
    head[i + head_dim / 2] = b * cosine + a * sine;
  }
}

// Divides one head by its root mean square and multiplies it by the weight.
inline void norm_head(double* head, const Values& weight, double epsilon) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += head[i] * head[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  for (std::size_t i = 0; i < weight.size(); ++i) head[i] *= scale * weight[i];
}

inline Values attention(const Values& x, const Weights& weights, const std::string& name,
                        const TransformerShape& shape, const Batch& batch) {
  const std::size_t dim = count(shape.head_dim()), heads = count(shape.heads);
  const std::size_t groups = count(shape.groups), row = (heads + 2 * groups) * dim;
  Values qkv = linear(x, weights.at(name + ".qkv.weight"), find(weights, name + ".qkv.bias"),
                      count(shape.hidden));
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    if (shape.norms_all_heads) {
      norm_head(&qkv[t * row], weights.at(name + ".q_norm.weight"), shape.norm_epsilon);
      norm_head(&qkv[t * row + heads * dim], weights.at(name + ".k_norm.weight"),
                shape.norm_epsilon);
    }
    for (std::size_t head = 0; head < heads + groups; ++head) {
      double* const of_head = &qkv[t * row + head * dim];
      if (shape.qk_norm && !shape.norms_all_heads) {
        const Values& weight =
            weights.at(name + (head < heads ? ".q_norm" : ".k_norm") + ".weight");
        norm_head(of_head, weight, shape.norm_epsilon);
      }
      if (shape.rotary) rotate(of_head, dim, t % batch.sequence, shape.rotary_frequencies);
    }
  }
  const auto window = static_cast<std::size_t>(shape.window_of(0));
  Values out(batch.rows() * heads * dim, 0.0);
  for (std::size_t b = 0; b < batch.batch; ++b) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t group = head / (heads / groups);
      for (std::size_t i = 0; i < batch.sequence; ++i) {
        const std::size_t query = (b * batch.sequence + i) * row + head * dim;
        Values weight(i + 1);
        double total = 0;
        for (std::size_t j = window > 0 && i >= window ? i - window + 1 : 0; j <= i; ++j) {
          const std::size_t key = (b * batch.sequence + j) * row + (heads + group) * dim;
          double score = 0;
          for (std::size_t d = 0; d < dim; ++d) score += qkv[query + d] * qkv[key + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += weight[j];
        }
        for (std::size_t j = 0; j <= i; ++j) {
          const std::size_t value = (b * batch.sequence + j) * row + (heads + groups + group) * dim;
          for (std::size_t d = 0; d < dim; ++d) {
            out[((b * batch.sequence + i) * heads + head) * dim + d] +=
                weight[j] / total * qkv[value + d];
          }
        }
      }
    }
  }
  return linear(out, weights.at(name + ".output.weight"), find(weights, name + ".output.bias"),
                heads * dim);
}

// Rotates the pairs (2i, 2i + 1) of D elements at `position`.
inline void rotate_neighbours(double* x, std::size_t dim, std::size_t position,
                              const RotaryFrequencies& frequencies) {
  for (std::size_t i = 0; i < dim / 2; ++i) {
    const double angle = static_cast<double>(position) *
                         frequencies.of(static_cast<std::int64_t>(i), static_cast<int>(dim));
    const double a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = (a * std::cos(angle) - b * std::sin(angle)) * frequencies.amplitude;
    x[2 * i + 1] = (b * std::cos(angle) + a * std::sin(angle)) * frequencies.amplitude;
  }
}

inline Values latent_attention(const Values& x, const Weights& weights, const std::string& name,
                               const TransformerShape& shape, const Batch& batch) {
  const LatentShape& latent = shape.latent;
  const std::size_t hidden = count(shape.hidden), heads = count(shape.heads);
  const std::size_t rank = count(latent.rank), plain = count(latent.plain);
  const std::size_t rotary = count(latent.rotary), value = count(latent.value);
  const std::size_t dim = plain + rotary, down = rank + rotary, up = plain + value;
  const auto bias = [&](const char* of) { return find(weights, name + of + std::string(".bias")); };
  Values q;
  if (latent.query_rank > 0) {
    Values low = linear(x, weights.at(name + ".q_down.weight"), bias(".q_down"), hidden);
    const Values& weight = weights.at(name + ".q_latent_norm.weight");
    for (std::size_t at = 0; at < low.size(); at += weight.size()) {
      norm_head(&low[at], weight, latent.norm_epsilon);
    }
    q = linear(low, weights.at(name + ".q_up.weight"), nullptr, weight.size());
  } else {
    q = linear(x, weights.at(name + ".q.weight"), nullptr, hidden);
  }
  Values both = linear(x, weights.at(name + ".kv_down.weight"), bias(".kv_down"), hidden);
  Values low(batch.rows() * rank);
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    const std::size_t position = t % batch.sequence;
    norm_head(&both[t * down], weights.at(name + ".kv_latent_norm.weight"), latent.norm_epsilon);
    std::copy_n(&both[t * down], rank, &low[t * rank]);
    rotate_neighbours(&both[t * down + rank], rotary, position, shape.rotary_frequencies);
    for (std::size_t a = 0; a < heads; ++a) {
      rotate_neighbours(&q[(t * heads + a) * dim + plain], rotary, position,
                        shape.rotary_frequencies);
    }
  }
  const Values kv = linear(low, weights.at(name + ".kv_up.weight"), nullptr, rank);
  Values out(batch.rows() * heads * value, 0.0);
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    for (std::size_t a = 0; a < heads; ++a) {
      const double* const query = &q[(t * heads + a) * dim];
      Values share;
      double total = 0;
      for (std::size_t s = t - t % batch.sequence; s <= t; ++s) {
        double score = 0;
        for (std::size_t d = 0; d < plain; ++d) score += query[d] * kv[(s * heads + a) * up + d];
        for (std::size_t d = 0; d < rotary; ++d) {
          score += query[plain + d] * both[s * down + rank + d];
        }
        share.push_back(
            std::exp(score * latent.score_factor / std::sqrt(static_cast<double>(dim))));
        total += share.back();
      }
      for (std::size_t j = 0; j < share.size(); ++j) {
        const std::size_t s = t - t % batch.sequence + j;
        for (std::size_t d = 0; d < value; ++d) {
          out[(t * heads + a) * value + d] +=
              share[j] / total * kv[(s * heads + a) * up + plain + d];
        }
      }
    }
  }
  return linear(out, weights.at(name + ".output.weight"), bias(".output"), heads * value);
}

inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline Values mlp(const Values& x, const Weights& weights, const std::string& name,
                  const TransformerShape& shape) {
  const Values up = linear(x, weights.at(name + ".up.weight"), find(weights, name + ".up.bias"),
                           count(shape.hidden));
  const std::size_t ffn = count(shape.ffn), row = shape.swiglu ? 2 * ffn : ffn;
  Values y(up.size() / row * ffn);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double* from = &up[i / ffn * row + i % ffn];
    y[i] = shape.swiglu ? from[0] / (1 + std::exp(-from[0])) * from[ffn] : gelu(from[0]);
  }
  return linear(y, weights.at(name + ".down.weight"), find(weights, name + ".down.bias"), ffn);
}

inline Values sum(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline Values block(const Values& x, const Weights& weights, const std::string& name,
                    const TransformerShape& shape, const Batch& batch) {
  const Values normed = norm(x, weights, name + ".attention_norm", shape);
  const Values h = sum(attention(normed, weights, name + ".attention", shape, batch), x);
  return sum(mlp(norm(h, weights, name + ".mlp_norm", shape), weights, name + ".mlp", shape), h);
}

// The scores, the probabilities and the choice of one token's experts.
struct Routed {
  Values scores, probabilities, logits;
  std::vector<std::size_t> chosen;  // ascending
  Values weights;                   // of those chosen
};
inline Routed route(const double* x, const Values& router, const TransformerShape& shape) {
  const RouterShape& choice = shape.experts.router;
  const std::size_t hidden = count(shape.hidden), experts = count(choice.experts);
  Routed r{{}, {}, linear(Values(x, x + hidden), router, nullptr, hidden), {}, {}};
  double exponentials = 0, all = 0, own = 0;
  for (const double logit : r.logits) exponentials += std::exp(logit);
  for (const double logit : r.logits) {
    const bool sigmoid = choice.score == RouterScore::sigmoid;
    r.scores.push_back(sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / exponentials);
    all += r.scores.back();
  }
  for (const double score : r.scores) r.probabilities.push_back(score / all);
  std::vector<bool> taken(experts);
  for (std::int64_t k = 0; k < choice.topk; ++k) {
    std::size_t best = experts;
    for (std::size_t e = 0; e < experts; ++e) {
      if (!taken[e] && (best == experts || r.scores[e] > r.scores[best])) best = e;
    }
    taken[best] = true;
    own += r.scores[best];
  }
  for (std::size_t e = 0; e < experts; ++e) {
    if (!taken[e]) continue;
    r.chosen.push_back(e);
    r.weights.push_back(r.scores[e] / (choice.normalized ? own : 1) * choice.scaling);
  }
  return r;
}

// Every chosen expert's SwiGLU of each token, times its weight, where the expert has room in the
// sample, and the shared expert's.
inline Values experts(const Values& x, const Weights& weights, const std::string& name,
                      const TransformerShape& shape, const Batch& batch) {
  const std::size_t hidden = count(shape.hidden), ffn = count(shape.experts.ffn);
  const Values &up = weights.at(name + ".experts.up"), &down = weights.at(name + ".experts.down");
  Values y(x.size());
  std::vector<std::size_t> taken(count(shape.experts.router.experts));
  for (std::size_t t = 0; t < x.size(); t += hidden) {
    const Routed r = route(&x[t], weights.at(name + ".router.weight"), shape);
    if (t / hidden % batch.sequence == 0) std::fill(taken.begin(), taken.end(), 0);
    for (std::size_t k = 0; k < r.chosen.size(); ++k) {
      const double limit = shape.experts.capacity_factor *
                           static_cast<double>(r.chosen.size() * batch.sequence) /
                           static_cast<double>(taken.size());
      if (++taken[r.chosen[k]] > std::ceil(limit) && limit > 0) continue;
      const double* const matrix = &up[r.chosen[k] * 2 * ffn * hidden];
      const double* const back = &down[r.chosen[k] * hidden * ffn];
      for (std::size_t j = 0; j < ffn; ++j) {
        double gate = 0, value = 0;
        for (std::size_t i = 0; i < hidden; ++i) {
          gate += matrix[j * hidden + i] * x[t + i];
          value += matrix[(ffn + j) * hidden + i] * x[t + i];
        }
        const double h = r.weights[k] * gate / (1 + std::exp(-gate)) * value;
        for (std::size_t i = 0; i < hidden; ++i) y[t + i] += back[i * ffn + j] * h;
      }
    }
  }
  if (shape.experts.shared_ffn == 0) return y;
  TransformerShape shared = shape;
  shared.ffn = shape.experts.shared_ffn;
  return sum(y, mlp(x, weights, name + ".shared", shared));
}

// The balancing losses of one micro-batch, summed over its tokens.
inline double balancing_losses(const Values& x, const Weights& weights, const std::string& name,
                               const TransformerShape& shape, const Batch& batch) {
  const ExpertsShape& of = shape.experts;
  const std::size_t hidden = count(shape.hidden), experts = count(of.router.experts);
  const std::size_t sets = of.balances_micro_batch ? 1 : batch.batch, rows = batch.rows() / sets;
  const auto tokens = static_cast<double>(rows);
  double total = 0;
  for (std::size_t b = 0; b < sets; ++b) {
    Values share(experts), probability(experts);
    for (std::size_t s = 0; s < rows; ++s) {
      const Routed r =
          route(&x[(b * rows + s) * hidden], weights.at(name + ".router.weight"), shape);
      for (const std::size_t e : r.chosen) {
        share[e] += static_cast<double>(experts) / static_cast<double>(of.router.topk) / tokens;
      }
      double exponentials = 0;
      for (std::size_t e = 0; e < experts; ++e) {
        probability[e] += r.probabilities[e] / tokens;
        exponentials += std::exp(r.logits[e]);
      }
      total += of.z_loss * std::pow(std::log(exponentials), 2);
    }
    for (std::size_t e = 0; e < experts; ++e) {
      total += tokens * of.balancing_loss * share[e] * probability[e];
    }
  }
  return total;
}

// Rows of the table, plus those of the learned positions if the model has them.
inline Values embedding(const Weights& weights, const TransformerShape& shape, const Batch& batch) {
  const Values& table = weights.at("embedding.weight");
  const Values* positions = find(weights, "positions.weight");
  const std::size_t hidden = count(shape.hidden);
  Values x(batch.rows() * hidden);
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    for (std::size_t i = 0; i < hidden; ++i) {
      x[t * hidden + i] =
          table[count(batch.tokens[t]) * hidden + i] +
          (positions != nullptr ? (*positions)[t % batch.sequence * hidden + i] : 0);
    }
  }
  return x;
}

// Losses (T): (1 - e)·(-log p[label]) + e·mean of -log p, as torch.nn.CrossEntropyLoss.
inline Values cross_entropy(const Values& logits, const TransformerShape& shape,
                            const Batch& batch) {
  const std::size_t vocabulary = count(shape.vocabulary);
  const double smoothing = shape.label_smoothing;
  Values losses(batch.rows());
  for (std::size_t t = 0; t < batch.rows(); ++t) {
    const double* row = &logits[t * vocabulary];
    double total = 0, mean = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) {
      total += std::exp(row[v]);
      mean += row[v] / static_cast<double>(vocabulary);
    }
    losses[t] = std::log(total) - (1 - smoothing) * row[count(batch.labels[t])] - smoothing * mean;
  }
  return losses;
}

// The gradient of f with respect to every element of `at`, by central differences.
inline Values numeric_gradient(Values& at, const std::function<double()>& f) {
  constexpr double step = 1e-5;
  Values gradient(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double kept = at[i];
    at[i] = kept + step;
    const double above = f();
    at[i] = kept - step;
    gradient[i] = (above - f()) / (2 * step);
    at[i] = kept;
  }
  return gradient;
}

}  // namespace trident::reference
