#include "kernels/routing.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/state.h"

namespace trident::cuda {
namespace {

constexpr int warps = 4;         // in a block; a warp handles a token
constexpr double least = 1e-20;  // DeepSeek-V3's guard against a division by 0

struct KeyMaximum {
  __device__ static unsigned long long of(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
  }
};

// A number that orders values from small to large, and equal ones from the highest expert to the
// lowest. NaN is the largest value, so that it reaches the loss. No value has the key 0.
__device__ inline unsigned long long key_of(float value, int expert) {
  const unsigned bits = __float_as_uint(value + 0.0f);  // -0 becomes 0
  const unsigned ordered = value != value    ? 0xffffffffu
                           : bits >> 31 != 0 ? ~bits
                                             : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 |
         (0xffffffffu - static_cast<unsigned>(expert));
}
__device__ inline int expert_of(unsigned long long key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

// The scores of one token's logits, which a warp computes together.
struct Scores {
  const float* logits;
  int experts;
  bool sigmoid;
  double largest = 0, sum = 0;  // of the exponentials of logits - largest
  double total = 1;             // of the scores

  __device__ Scores(const RouterShape& shape, const float* row)
      : logits(row),
        experts(static_cast<int>(shape.experts)),
        sigmoid(shape.score == RouterScore::sigmoid) {
    const int lane = threadIdx.x % 32;
    float most = -INFINITY;
    for (int e = lane; e < experts; e += 32) most = fmaxf(most, logits[e]);
    largest = reduce_warp<Maximum>(most);
    double exponentials = 0, scores = 0;
    for (int e = lane; e < experts; e += 32) exponentials += exp(logits[e] - largest);
    sum = reduce_warp<Sum>(exponentials);
    if (!sigmoid) return;
    for (int e = lane; e < experts; e += 32) scores += of(e);
    total = reduce_warp<Sum>(scores) + least;
  }
  __device__ float softmax(int e) const {
    return static_cast<float>(exp(logits[e] - largest) / sum);
  }
  __device__ float of(int e) const {
    if (!sigmoid) return softmax(e);
    return static_cast<float>(1 / (1 + exp(-static_cast<double>(logits[e]))));
  }
  __device__ double log_sum() const { return largest + log(sum); }
};

// The sum by which a normalized token's weights are divided; 1 for others.
__device__ inline double divisor_of(const RouterShape& shape, const Scores& scores,
                                    const std::int32_t* experts) {
  if (!shape.normalized) return 1;
  double sum = 0;
  for (int k = threadIdx.x % 32; k < shape.topk; k += 32) sum += scores.of(experts[k]);
  return reduce_warp<Sum>(sum) + least;
}

// The value by which a token chooses experts: score plus bias.
struct Deciding {
  const Scores& scores;
  const float* bias;
  __device__ float of(int e) const {
    const float score = scores.of(e);
    return bias == nullptr ? score : score + bias[e];
  }
};

// The largest key below `before` of the experts [begin, end).
__device__ inline unsigned long long next_key(const Deciding& values, int begin, int end,
                                              std::uint64_t groups_kept, int group_size,
                                              unsigned long long before) {
  unsigned long long best = 0;
  for (int e = begin + static_cast<int>(threadIdx.x % 32); e < end; e += 32) {
    if ((groups_kept >> (e / group_size) & 1) == 0) continue;
    const unsigned long long key = key_of(values.of(e), e);
    if (key < before) best = KeyMaximum::of(best, key);
  }
  return reduce_warp<KeyMaximum>(best);
}

constexpr unsigned long long above_all = ~0ull;

// The groups whose experts a token may take, one bit each.
__device__ inline std::uint64_t groups_kept(const RouterShape& shape, const Deciding& values,
                                            int group_size) {
  if (shape.groups == 1) return ~std::uint64_t{0};
  const int groups = static_cast<int>(shape.groups);
  std::uint64_t kept = 0;
  unsigned long long before = above_all;
  for (int taken = 0; taken < shape.group_topk; ++taken) {
    unsigned long long best = 0;
    for (int g = 0; g < groups; ++g) {
      const int begin = g * group_size, end = begin + group_size;
      const auto first = next_key(values, begin, end, ~std::uint64_t{0}, group_size, above_all);
      const auto second = next_key(values, begin, end, ~std::uint64_t{0}, group_size, first);
      const float sum = values.of(expert_of(first)) + values.of(expert_of(second));
      const unsigned long long key = key_of(sum, g);
      if (key < before) best = KeyMaximum::of(best, key);
    }
    kept |= std::uint64_t{1} << expert_of(best);
    before = best;
  }
  return kept;
}

struct Route {
  RouterShape shape;
  const float *logits, *bias;
  std::int32_t* experts;
  float* weights;
  std::int64_t tokens;
};
__global__ void __launch_bounds__(32 * warps) route_kernel(Route a) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (t >= a.tokens) return;
  const int lane = threadIdx.x % 32, experts = static_cast<int>(a.shape.experts);
  const int topk = static_cast<int>(a.shape.topk);
  const int group_size = experts / static_cast<int>(a.shape.groups);
  const Scores scores(a.shape, a.logits + t * experts);
  const Deciding values{scores, a.bias};
  const std::uint64_t kept = groups_kept(a.shape, values, group_size);
  unsigned long long last = above_all;  // the smallest key that is taken
  for (int k = 0; k < topk; ++k) last = next_key(values, 0, experts, kept, group_size, last);
  const auto takes = [&](int e) {
    return e < experts && (kept >> (e / group_size) & 1) != 0 && key_of(values.of(e), e) >= last;
  };
  double divisor = 1;
  if (a.shape.normalized) {
    double sum = 0;
    for (int e = lane; e < experts; e += 32) sum += takes(e) ? scores.of(e) : 0.0f;
    divisor = reduce_warp<Sum>(sum) + least;
  }
  std::int64_t before = t * topk;
  for (int begin = 0; begin < experts; begin += 32) {
    const int e = begin + lane;
    const int upto = sum_upto(takes(e) ? 1 : 0);
    if (takes(e) && before + upto <= (t + 1) * topk) {
      a.experts[before + upto - 1] = e;
      a.weights[before + upto - 1] = static_cast<float>(scores.of(e) / divisor) * a.shape.scaling;
    }
    before += __shfl_sync(0xffffffffu, upto, 31);
  }
}

struct RouteBackward {
  RouterShape shape;
  const float* logits;
  const std::int32_t* experts;
  const float *grad_weights, *grad_probabilities;
  std::int64_t sequence, first_row;
  float grad_square;
  float* grad_logits;
  std::int64_t tokens;
};
__global__ void __launch_bounds__(32 * warps) route_backward_kernel(RouteBackward a) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (t >= a.tokens) return;
  const int lane = threadIdx.x % 32, experts = static_cast<int>(a.shape.experts);
  const int topk = static_cast<int>(a.shape.topk);
  const Scores scores(a.shape, a.logits + t * experts);
  const std::int32_t* const own = a.experts + t * topk;
  const float* const grad_own = a.grad_weights + t * topk;
  const double divisor = divisor_of(a.shape, scores, own);
  double mean = 0;
  if (a.shape.normalized) {
    for (int k = lane; k < topk; k += 32) {
      mean += static_cast<double>(grad_own[k]) * scores.of(own[k]) / divisor;
    }
    mean = reduce_warp<Sum>(mean);
  }
  const float* const of_sample =
      a.grad_probabilities == nullptr
          ? nullptr
          : a.grad_probabilities + (a.first_row + t) / a.sequence * experts;
  double mean_of_all = 0;
  if (of_sample != nullptr && scores.sigmoid) {
    for (int e = lane; e < experts; e += 32) {
      mean_of_all += static_cast<double>(of_sample[e]) * scores.of(e) / scores.total;
    }
    mean_of_all = reduce_warp<Sum>(mean_of_all);
  }
  const auto gradient = [&](int e) {  // of the score
    double grad = 0;
    for (int k = 0; k < topk; ++k) {
      if (own[k] == e) grad = a.shape.scaling * (grad_own[k] - mean) / divisor;
    }
    if (of_sample != nullptr) grad += (of_sample[e] - mean_of_all) / scores.total;
    return grad;
  };
  double weighted = 0;
  if (!scores.sigmoid) {
    for (int e = lane; e < experts; e += 32) weighted += gradient(e) * scores.of(e);
    weighted = reduce_warp<Sum>(weighted);
  }
  for (int e = lane; e < experts; e += 32) {
    const double s = scores.of(e);
    double value = scores.sigmoid ? gradient(e) * s * (1 - s) : s * (gradient(e) - weighted);
    if (a.grad_square != 0) value += 2 * a.grad_square * scores.log_sum() * scores.softmax(e);
    a.grad_logits[t * experts + e] = static_cast<float>(value);
  }
}

// The sum of each token's scores, the square of its log-sum-exp, and the entropy of its
// probabilities.
__global__ void __launch_bounds__(32 * warps)
    token_sums_kernel(RouterShape shape, const float* logits, double* totals, float* squares,
                      float* entropies, std::int64_t tokens) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  if (t >= tokens) return;
  const Scores scores(shape, logits + t * shape.experts);
  double entropy = 0;
  for (int e = threadIdx.x % 32; entropies != nullptr && e < scores.experts; e += 32) {
    const double probability = scores.of(e) / scores.total;
    if (probability > 0) entropy -= probability * log(probability);
  }
  entropy = reduce_warp<Sum>(entropy);
  if (threadIdx.x % 32 != 0) return;
  if (entropies != nullptr) entropies[t] = static_cast<float>(entropy);
  // The largest logit and the sum stand for a softmax's scores.
  totals[2 * t] = scores.sigmoid ? 0 : scores.largest;
  totals[2 * t + 1] = scores.sigmoid ? scores.total : scores.sum;
  squares[t] = static_cast<float>(scores.log_sum() * scores.log_sum());
}

// A block adds up one expert over the tokens of a sample.
__global__ void __launch_bounds__(128)
    sample_sums_kernel(RouterShape shape, const float* logits, const std::int32_t* chosen,
                       const double* totals, std::int64_t tokens, std::int64_t sequence,
                       std::int64_t first_row, std::int64_t* counts, double* probabilities) {
  const std::int64_t e = blockIdx.x % shape.experts, sample = blockIdx.x / shape.experts;
  const std::int64_t begin = sample * sequence - first_row;
  const std::int64_t end = begin + sequence < tokens ? begin + sequence : tokens;
  std::int64_t count = 0;
  double sum = 0;
  for (std::int64_t t = (begin > 0 ? begin : 0) + threadIdx.x; t < end; t += 128) {
    const double logit = logits[t * shape.experts + e];
    if (shape.score == RouterScore::sigmoid) {
      sum += static_cast<float>(1 / (1 + exp(-logit))) / totals[2 * t + 1];
    } else {
      sum += static_cast<float>(exp(logit - totals[2 * t]) / totals[2 * t + 1]);
    }
    for (std::int64_t k = 0; k < shape.topk; ++k) count += chosen[t * shape.topk + k] == e;
  }
  count = reduce_block<128, Sum>(count);
  sum = reduce_block<128, Sum>(sum);
  if (threadIdx.x != 0) return;
  counts[blockIdx.x] = count;
  probabilities[blockIdx.x] = sum;
}

// A thread handles an expert.
__global__ void reported_kernel(std::int64_t experts, std::int64_t samples,
                                const double* probabilities, std::int64_t* reported) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= experts) return;
  std::int64_t sum = 0;
  for (std::int64_t b = 0; b < samples; ++b) {
    const double own = probabilities[b * experts + e];
    if (own - own == 0) sum += llrint(own / probability_unit);  // finite; NaN reaches the loss
  }
  reported[e] = sum;
}

// A warp handles a sample.
__global__ void __launch_bounds__(32)
    balance_kernel(std::int64_t experts, double factor, const std::int64_t* counts,
                   const double* probabilities, float* shares, double* losses) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * experts;
  double loss = 0;
  for (std::int64_t e = threadIdx.x; e < experts; e += 32) {
    const auto share = static_cast<float>(factor * static_cast<double>(counts[begin + e]));
    shares[begin + e] = share;
    loss += share * probabilities[begin + e];
  }
  loss = reduce_warp<Sum>(loss);
  if (threadIdx.x == 0) losses[blockIdx.x] = loss;
}

// One warp handles a layer.
__global__ void __launch_bounds__(32)
    update_bias_kernel(std::int64_t experts, const std::int64_t* counts, float* bias, float rate) {
  std::int64_t total = 0;
  for (std::int64_t e = threadIdx.x; e < experts; e += 32) total += counts[e];
  total = reduce_warp<Sum>(total);
  for (std::int64_t e = threadIdx.x; e < experts; e += 32) {
    // The signs of mean - count, without a division.
    const std::int64_t scaled = counts[e] * experts;
    if (scaled < total) bias[e] += rate;
    if (scaled > total) bias[e] -= rate;
  }
}

}  // namespace

void route(const Access& access, Context&, const RouteArgs& args) {
  const Route a{.shape = args.shape,
                .logits = data<float>(access, args.logits),
                .bias = args.bias ? data<float>(access, args.bias) : nullptr,
                .experts = data<std::int32_t>(access, args.experts),
                .weights = data<float>(access, args.weights),
                .tokens = args.logits.dim(0)};
  start(queue_of(access), blocks_of(ceil_div(a.tokens, warps)), 32 * warps, route_kernel, a);
}

void route_backward(const Access& access, Context&, const RouteBackwardArgs& args) {
  const bool balanced = args.grad_probabilities.defined();
  const RouteBackward a{
      .shape = args.shape,
      .logits = data<float>(access, args.logits),
      .experts = data<std::int32_t>(access, args.experts),
      .grad_weights = data<float>(access, args.grad_weights),
      .grad_probabilities = balanced ? data<float>(access, args.grad_probabilities) : nullptr,
      .sequence = args.sequence,
      .first_row = args.first_row,
      .grad_square = args.grad_square,
      .grad_logits = data<float>(access, args.grad_logits),
      .tokens = args.logits.dim(0)};
  start(queue_of(access), blocks_of(ceil_div(a.tokens, warps)), 32 * warps, route_backward_kernel,
        a);
}

void routing_sums(const Access& access, Context& context, const RoutingSumsArgs& args) {
  const std::int64_t tokens = args.logits.dim(0), samples = args.counts.dim(0);
  const auto* const logits = data<float>(access, args.logits);
  auto* const totals = state_of(context).scratch<double>(access, context, routing_totals(tokens));
  const Queue& queue = queue_of(access);
  start(queue, blocks_of(ceil_div(tokens, warps)), 32 * warps, token_sums_kernel, args.shape,
        logits, totals, data<float>(access, args.squares),
        args.entropies ? data<float>(access, args.entropies) : nullptr, tokens);
  start(queue, blocks_of(samples * args.shape.experts), 128, sample_sums_kernel, args.shape, logits,
        data<std::int32_t>(access, args.experts), static_cast<const double*>(totals), tokens,
        args.sequence, args.first_row, data<std::int64_t>(access, args.counts),
        data<double>(access, args.probabilities));
  if (!args.reported) return;
  start(queue, blocks_of(ceil_div(args.shape.experts, 128)), 128, reported_kernel,
        args.shape.experts, samples,
        static_cast<const double*>(data<double>(access, args.probabilities)),
        data<std::int64_t>(access, args.reported));
}

void balance(const Access& access, Context&, const BalanceArgs& args) {
  start(queue_of(access), blocks_of(args.counts.dim(0)), 32, balance_kernel, args.counts.dim(1),
        args.factor, data<std::int64_t>(access, args.counts),
        data<double>(access, args.probabilities), data<float>(access, args.shares),
        data<double>(access, args.losses));
}

void update_expert_bias(const Access& access, Context&, const UpdateExpertBiasArgs& args) {
  start(queue_of(access), blocks_of(1), 32, update_bias_kernel, args.counts.dim(0),
        static_cast<const std::int64_t*>(data<std::int64_t>(access, args.counts)),
        data<float>(access, args.bias), args.rate);
}

}  // namespace trident::cuda
