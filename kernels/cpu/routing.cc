#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/state.h"

namespace trident::cpu {
namespace {

// DeepSeek-V3's guard against a division by 0.
constexpr double least = 1e-20;

// The scores of one token, computed in fp64 and rounded once.
class Scores {
 public:
  explicit Scores(const RouterShape& shape)
      : shape_(shape), values_(static_cast<std::size_t>(shape.experts)) {}

  void compute(const float* logits) {
    if (shape_.score == RouterScore::sigmoid) {
      total_ = least;
      for (std::size_t e = 0; e < values_.size(); ++e) {
        values_[e] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logits[e]))));
        total_ += values_[e];
      }
    } else {
      softmax(logits, values_);
      total_ = 1;
    }
  }
  float operator[](std::size_t e) const { return values_[e]; }
  std::size_t size() const { return values_.size(); }
  // The divisor of the probabilities: the sum of the scores.
  double total() const { return total_; }
  double entropy() const {  // of the probabilities, in nats
    double sum = 0;
    for (const float score : values_) {
      const double probability = score / total_;
      if (probability > 0) sum -= probability * std::log(probability);
    }
    return sum;
  }

  // The softmax of the logits. Returns the log of the sum of their exponentials.
  static double softmax(const float* logits, std::vector<float>& into) {
    const double largest = *std::max_element(logits, logits + into.size());
    double sum = 0;
    for (std::size_t e = 0; e < into.size(); ++e) sum += std::exp(logits[e] - largest);
    for (std::size_t e = 0; e < into.size(); ++e) {
      into[e] = static_cast<float>(std::exp(logits[e] - largest) / sum);
    }
    return largest + std::log(sum);
  }

 private:
  const RouterShape& shape_;
  std::vector<float> values_;
  double total_ = 1;
};

// The weights of the chosen experts: score / divisor() · scaling.
double divisor_of(const RouterShape& shape, const Scores& scores, const std::int32_t* experts) {
  if (!shape.normalized) return 1;
  double sum = 0;
  for (std::int64_t k = 0; k < shape.topk; ++k) {
    sum += scores[static_cast<std::size_t>(experts[k])];
  }
  return sum + least;  // where a bias chose experts whose scores are 0
}

// Chooses the experts of one token.
class Choice {
 public:
  explicit Choice(const RouterShape& shape)
      : shape_(shape), taken_(static_cast<std::size_t>(shape.experts)) {}

  // values: (E), which decide. experts: (K), ascending.
  void take(const std::vector<float>& values, std::int32_t* experts) {
    std::fill(taken_.begin(), taken_.end(), false);
    if (shape_.groups > 1) leave_out_groups(values);
    const std::vector<bool> left_out = taken_;
    for (std::int64_t k = 0; k < shape_.topk; ++k) {
      taken_[largest(values, taken_, 0, values.size())] = true;
    }
    for (std::size_t e = 0; e < taken_.size(); ++e) {
      if (taken_[e] && !left_out[e]) *experts++ = static_cast<std::int32_t>(e);
    }
  }

 private:
  // The index of the largest value that isn't taken, the lowest one among equal values. NaN is
  // larger than all, so that it reaches the loss.
  static std::size_t largest(const std::vector<float>& values, const std::vector<bool>& taken,
                             std::size_t begin, std::size_t end) {
    std::size_t best = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (taken[i]) continue;
      const bool larger = best == end || values[i] > values[best] ||
                          (std::isnan(values[i]) && !std::isnan(values[best]));
      if (larger) best = i;
    }
    return best;
  }

  // Marks the experts of other groups as taken.
  void leave_out_groups(const std::vector<float>& values) {
    const auto groups = static_cast<std::size_t>(shape_.groups), size = values.size() / groups;
    std::vector<float> sums;
    for (std::size_t g = 0; g < groups; ++g) {
      std::vector<bool> one(values.size());
      const std::size_t first = largest(values, one, g * size, (g + 1) * size);
      one[first] = true;
      sums.push_back(values[first] + values[largest(values, one, g * size, (g + 1) * size)]);
    }
    std::vector<bool> kept(groups);
    for (std::int64_t k = 0; k < shape_.group_topk; ++k) {
      kept[largest(sums, kept, 0, groups)] = true;
    }
    for (std::size_t e = 0; e < values.size(); ++e) taken_[e] = !kept[e / size];
  }

  const RouterShape& shape_;
  std::vector<bool> taken_;
};

// The chunks of the tokens of each sample, by the positions of the sample.
struct RoutingChunks {
  explicit RoutingChunks(const RoutingSumsArgs& args)
      : each((args.sequence + size - 1) / size), sums(args.counts.numel() * each) {}
  static constexpr std::int64_t size = 64;
  std::int64_t each, sums;  // of a sample; of all, by expert

  std::int64_t bytes() const { return sums * static_cast<std::int64_t>(sizeof(double)); }
  // The tokens of this call in a chunk: first … last - 1.
  static std::pair<std::int64_t, std::int64_t> tokens(const RoutingSumsArgs& args, std::int64_t i) {
    const std::int64_t in_sample = (args.sequence + size - 1) / size;
    const std::int64_t sample = i / in_sample * args.sequence;
    const std::int64_t begin = sample + i % in_sample * size;
    const std::int64_t end = std::min(begin + size, sample + args.sequence);
    const std::int64_t all = args.logits.dim(0);
    const std::int64_t first = std::clamp<std::int64_t>(begin - args.first_row, 0, all);
    return {first, std::clamp(end - args.first_row, first, all)};
  }
};

// Calls f(begin, end) for parts of the tokens, in the context's team.
template <class F>
void each_part_of_tokens(Context& context, const Tensor& logits, F&& f) {
  context.team().parallel_for(logits.dim(0), std::max<std::int64_t>(1, 1024 / logits.dim(1)), f);
}

}  // namespace

void route(const Access& access, Context& context, const RouteArgs& args) {
  const RouterShape& shape = args.shape;
  const auto* const logits = data<float>(access, args.logits);
  const auto* const bias = args.bias ? data<float>(access, args.bias) : nullptr;
  auto* const experts = data<std::int32_t>(access, args.experts);
  auto* const weights = data<float>(access, args.weights);
  each_part_of_tokens(context, args.logits, [&](std::int64_t begin, std::int64_t end) {
    Scores scores(shape);
    Choice choice(shape);
    std::vector<float> values(static_cast<std::size_t>(shape.experts));
    for (std::int64_t t = begin; t < end; ++t) {
      scores.compute(logits + t * shape.experts);
      for (std::size_t e = 0; e < values.size(); ++e) {
        values[e] = scores[e] + (bias == nullptr ? 0 : bias[e]);
      }
      std::int32_t* const own = experts + t * shape.topk;
      choice.take(values, own);
      const double divisor = divisor_of(shape, scores, own);
      for (std::int64_t k = 0; k < shape.topk; ++k) {
        const double score = scores[static_cast<std::size_t>(own[k])];
        weights[t * shape.topk + k] = static_cast<float>(score / divisor) * shape.scaling;
      }
    }
  });
}

void route_backward(const Access& access, Context& context, const RouteBackwardArgs& args) {
  const RouterShape& shape = args.shape;
  const std::int64_t experts = shape.experts, topk = shape.topk;
  const auto* const logits = data<float>(access, args.logits);
  const auto* const chosen = data<std::int32_t>(access, args.experts);
  const auto* const grad_weights = data<float>(access, args.grad_weights);
  const auto* const grad_probabilities =
      args.grad_probabilities ? data<float>(access, args.grad_probabilities) : nullptr;
  auto* const grad_logits = data<float>(access, args.grad_logits);
  each_part_of_tokens(context, args.logits, [&](std::int64_t begin, std::int64_t end) {
    Scores scores(shape);
    std::vector<double> grad(static_cast<std::size_t>(experts));  // of the scores
    std::vector<float> softmax(static_cast<std::size_t>(experts));
    for (std::int64_t t = begin; t < end; ++t) {
      const float* const row = logits + t * experts;
      const std::int32_t* const own = chosen + t * topk;
      scores.compute(row);
      std::fill(grad.begin(), grad.end(), 0.0);
      const double divisor = divisor_of(shape, scores, own);
      double mean = 0;  // of the weights' gradients, by the normalized weights
      for (std::int64_t k = 0; shape.normalized && k < topk; ++k) {
        mean += static_cast<double>(grad_weights[t * topk + k]) *
                scores[static_cast<std::size_t>(own[k])] / divisor;
      }
      for (std::int64_t k = 0; k < topk; ++k) {
        grad[static_cast<std::size_t>(own[k])] +=
            shape.scaling * (grad_weights[t * topk + k] - mean) / divisor;
      }
      if (grad_probabilities != nullptr) {
        const float* const of_sample =
            grad_probabilities + (args.first_row + t) / args.sequence * experts;
        double mean_of_all = 0;
        if (shape.score == RouterScore::sigmoid) {
          for (std::size_t e = 0; e < grad.size(); ++e) {
            mean_of_all += static_cast<double>(of_sample[e]) * scores[e] / scores.total();
          }
        }
        for (std::size_t e = 0; e < grad.size(); ++e) {
          grad[e] += (of_sample[e] - mean_of_all) / scores.total();
        }
      }
      double weighted = 0;
      for (std::size_t e = 0; e < grad.size(); ++e) weighted += grad[e] * scores[e];
      double log_sum = 0;
      if (args.grad_square != 0) log_sum = Scores::softmax(row, softmax);
      for (std::size_t e = 0; e < grad.size(); ++e) {
        const double s = scores[e];
        double value =
            shape.score == RouterScore::sigmoid ? grad[e] * s * (1 - s) : s * (grad[e] - weighted);
        if (args.grad_square != 0) value += 2 * args.grad_square * log_sum * softmax[e];
        grad_logits[t * experts + static_cast<std::int64_t>(e)] = static_cast<float>(value);
      }
    }
  });
}

// The tokens of a sample are added in chunks, in ascending order, then the chunks are.
void routing_sums(const Access& access, Context& context, const RoutingSumsArgs& args) {
  const RouterShape& shape = args.shape;
  const std::int64_t samples = args.counts.dim(0), experts = shape.experts;
  const auto* const logits = data<float>(access, args.logits);
  const auto* const chosen = data<std::int32_t>(access, args.experts);
  auto* const counts = data<std::int64_t>(access, args.counts);
  auto* const probabilities = data<double>(access, args.probabilities);
  auto* const squares = data<float>(access, args.squares);
  auto* const entropies = args.entropies ? data<float>(access, args.entropies) : nullptr;
  const RoutingChunks chunks(args);
  auto* const partial =
      reinterpret_cast<double*>(state_of(context).scratch(access, context, chunks.bytes()));
  context.team().parallel_for(samples * chunks.each, 1, [&](std::int64_t begin, std::int64_t end) {
    Scores scores(shape);
    std::vector<float> softmax(static_cast<std::size_t>(experts));
    for (std::int64_t i = begin; i < end; ++i) {
      const auto [first, last] = chunks.tokens(args, i);
      double* const sums = partial + i * experts;
      std::fill(sums, sums + experts, 0.0);
      for (std::int64_t t = first; t < last; ++t) {
        const double log_sum = Scores::softmax(logits + t * experts, softmax);
        squares[t] = static_cast<float>(log_sum * log_sum);
        scores.compute(logits + t * experts);
        for (std::int64_t e = 0; e < experts; ++e) {
          sums[e] += scores[static_cast<std::size_t>(e)] / scores.total();
        }
        if (entropies != nullptr) entropies[t] = static_cast<float>(scores.entropy());
      }
    }
  });
  std::fill(counts, counts + samples * experts, 0);
  std::fill(probabilities, probabilities + samples * experts, 0.0);
  for (std::int64_t i = 0; i < samples * chunks.each; ++i) {
    const std::int64_t at = i / chunks.each * experts;
    const auto [first, last] = chunks.tokens(args, i);
    for (std::int64_t e = 0; e < experts; ++e) probabilities[at + e] += partial[i * experts + e];
    for (std::int64_t k = first * shape.topk; k < last * shape.topk; ++k) ++counts[at + chosen[k]];
  }
  if (!args.reported) return;
  auto* const reported = data<std::int64_t>(access, args.reported);
  std::fill(reported, reported + experts, 0);
  for (std::int64_t i = 0; i < samples * experts; ++i) {
    // NaN reaches the loss, which stops the step.
    if (std::isfinite(probabilities[i])) {
      reported[i % experts] += std::llrint(probabilities[i] / probability_unit);
    }
  }
}

void reserve_routing_sums(const Access& access, Context& context, const RoutingSumsArgs& args) {
  state_of(context).scratch(access, context, RoutingChunks(args).bytes());
}

void balance(const Access& access, Context&, const BalanceArgs& args) {
  const std::int64_t samples = args.counts.dim(0), experts = args.counts.dim(1);
  const auto* const counts = data<std::int64_t>(access, args.counts);
  const auto* const probabilities = data<double>(access, args.probabilities);
  auto* const shares = data<float>(access, args.shares);
  auto* const losses = data<double>(access, args.losses);
  for (std::int64_t b = 0; b < samples; ++b) {
    losses[b] = 0;
    for (std::int64_t i = b * experts; i < (b + 1) * experts; ++i) {
      shares[i] = static_cast<float>(args.factor * static_cast<double>(counts[i]));
      losses[b] += shares[i] * probabilities[i];
    }
  }
}

void update_expert_bias(const Access& access, Context&, const UpdateExpertBiasArgs& args) {
  const std::int64_t experts = args.counts.dim(0);
  const auto* const counts = data<std::int64_t>(access, args.counts);
  auto* const bias = data<float>(access, args.bias);
  const std::int64_t total = std::accumulate(counts, counts + experts, std::int64_t{0});
  for (std::int64_t e = 0; e < experts; ++e) {
    // The signs of mean − count, without a division.
    const std::int64_t scaled = counts[e] * experts;
    if (scaled < total) bias[e] += args.rate;
    if (scaled > total) bias[e] -= args.rate;
  }
}

}  // namespace trident::cpu
