#include "run/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "core/rng.h"

namespace trident {
namespace {

struct Candidate {
  std::int32_t id;
  double weight;  // the probability, not yet divided by the sum
};

// The k likeliest tokens, and the tokens as likely as the k-th, in descending order. Equally likely
// tokens are in the order of their ids.
std::vector<Candidate> likeliest(const std::vector<float>& logits, std::int64_t k,
                                 double temperature) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  if (k > 0 && static_cast<std::size_t>(k) < logits.size()) {
    std::vector<float> sorted = logits;
    std::ranges::nth_element(sorted, sorted.begin() + (k - 1), std::greater<>());
    const float least = sorted[static_cast<std::size_t>(k - 1)];
    std::erase_if(ids, [&](std::int32_t id) { return logit(id) < least; });
  }
  std::ranges::stable_sort(ids,
                           [&](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
  std::vector<Candidate> result;
  for (const std::int32_t id : ids) {
    result.push_back(
        {id, std::exp((static_cast<double>(logit(id)) - logit(ids[0])) / temperature)});
  }
  return result;
}

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& one : candidates) sum += one.weight;
  return sum;
}

}  // namespace

std::int32_t sample(std::vector<float> logits, std::span<const std::int32_t> before,
                    const SamplingOptions& options, std::uint64_t draw, std::uint64_t text) {
  if (options.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options.repetition_penalty);
    for (const std::int32_t id : std::set<std::int32_t>(before.begin(), before.end())) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  if (options.temperature <= 0) {
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  std::vector<Candidate> left = likeliest(logits, options.top_k, options.temperature);
  if (options.top_p < 1) {
    const double limit = options.top_p * sum_of(left);
    double sum = 0;
    std::size_t kept = 0;
    while (kept < left.size() && (kept == 0 || sum < limit)) sum += left[kept++].weight;
    left.resize(kept);
  }
  // The likeliest token has weight 1.
  std::erase_if(left, [&](const Candidate& one) { return one.weight < options.min_p; });
  const auto words = philox(
      {static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(text), 0, 0},
      {static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32)});
  double at = (words[0] + 0.5) * 0x1p-32 * sum_of(left);
  for (const Candidate& one : left) {
    at -= one.weight;
    if (at <= 0) return one.id;
  }
  return left.back().id;
}

}  // namespace trident
