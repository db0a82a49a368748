#include "datasets/interleave.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace trident {
namespace {

// With 40 bits, the deficits of millions of sources fit in 64 bits.
constexpr double kLargest = 0x1p40;

std::vector<std::int64_t> to_integers(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> integers(weights.size());
  double scale = 1;
  for (int decimals = 0; decimals <= 9 && sum * scale < kLargest; ++decimals, scale *= 10) {
    std::ranges::transform(weights, integers.begin(),
                           [&](double w) { return std::llround(w * scale); });
    // A decimal fraction read into a double and scaled is off by a few units in the last place.
    const bool exact = std::ranges::equal(weights, integers, [&](double w, std::int64_t n) {
      return std::abs(w * scale - static_cast<double>(n)) <= 1e-15 * 4 * w * scale;
    });
    if (exact) return integers;
  }
  std::ranges::transform(weights, integers.begin(), [&](double w) {
    return w == 0 ? 0 : std::max(1LL, std::llround(w / sum * kLargest));
  });
  return integers;
}

}  // namespace

Interleave::Interleave(std::span<const double> weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || !std::isfinite(weights[i])) {
      throw RequestError(fmt::format("weight {} of source {}: needs a number >= 0", weights[i], i));
    }
    sum += weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw RequestError(
        fmt::format("the weights of {} sources sum to {}, needs more than 0", weights.size(), sum));
  }
  weights_ = to_integers(weights);
  const std::int64_t divisor = std::accumulate(weights_.begin(), weights_.end(), std::int64_t{0},
                                               std::gcd<std::int64_t, std::int64_t>);
  for (auto& w : weights_) w /= divisor;
  total_ = std::accumulate(weights_.begin(), weights_.end(), std::int64_t{0});
  state_.deficit.assign(weights_.size(), 0);
  state_.drawn.assign(weights_.size(), 0);
  for (auto& kept : kept_) kept.fill(state_);
}

void Interleave::step() {
  // At i = 0 all deficits are 0. Because of max(i, 1), the largest weight is drawn first.
  auto& [next, deficit, drawn] = state_;
  const auto& due = next == 0 ? weights_ : deficit;
  std::size_t source = weights_.size();
  for (std::size_t j = 0; j < weights_.size(); ++j) {
    if (weights_[j] > 0 && (source == weights_.size() || due[j] > due[source])) source = j;
  }
  deficit[source] -= total_;
  for (std::size_t j = 0; j < weights_.size(); ++j) deficit[j] += weights_[j];
  ++next;
  ++steps_;
  last_ = {static_cast<int>(source), drawn[source]++};
  for (std::size_t k = 0; k < kept_.size() && next % (kShortest << k) == 0; ++k) {
    auto& [latest, before] = kept_[k];
    // After a move back, `latest` may lie ahead of `next`; it is saved again when it is drawn
    // again.
    if (latest.next < next) std::swap(latest, before);
    if (latest.next != next) latest = state_;
  }
}

Interleave::Draw Interleave::at(std::int64_t i) {
  if (i < 0) throw Error(fmt::format("sample {} asked for", i));
  if (weights_.size() == 1) return {0, i};
  if (i < state_.next - 1) {
    const State* nearest = nullptr;
    for (const auto& two : kept_) {
      for (const State& kept : two) {
        if (kept.next <= i && (nearest == nullptr || kept.next > nearest->next)) nearest = &kept;
      }
    }
    if (nearest != nullptr) {
      state_ = *nearest;
    } else {
      state_.next = 0;
      std::ranges::fill(state_.deficit, 0);
      std::ranges::fill(state_.drawn, 0);
    }
  }
  while (state_.next <= i) step();
  return last_;
}

std::vector<std::int64_t> Interleave::drawn(std::int64_t samples) {
  if (weights_.size() == 1) return {samples};
  if (samples == 0) return std::vector<std::int64_t>(weights_.size(), 0);
  at(samples - 1);
  return state_.drawn;
}

std::vector<double> Interleave::shares() const {
  std::vector<double> shares;
  for (const auto w : weights_) {
    shares.push_back(static_cast<double>(w) / static_cast<double>(total_));
  }
  return shares;
}

}  // namespace trident
