#include "engine/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace trident {
namespace {

double cosine(double t) {
  return (1 + std::cos(std::numbers::pi * t)) / 2;
}

// The position of iteration `done` of `length` (from 1) within its cycle: above 0, at most 1.
double within_cycle(const LrSchedulerConfig& config, std::int64_t done, std::int64_t length) {
  // The end of cycle i, for cycles of lengths 1, m, m², …, is at the fraction (m^i - 1)/(m^n - 1)
  // of the total, or i/n.
  const auto n = static_cast<double>(config.num_cycles);
  const double m = config.cycle_mult;
  const auto end_of = [&](double i) {
    const double part =
        m == 1 ? i / n : std::pow(m, i - n) * (1 - std::pow(m, -i)) / (1 - std::pow(m, -n));
    return std::llround(part * static_cast<double>(length));
  };
  std::int64_t first = 0, last = config.num_cycles;  // the cycle is in (first, last]
  while (last - first > 1) {
    const std::int64_t middle = first + (last - first) / 2;
    (end_of(static_cast<double>(middle)) < done ? first : last) = middle;
  }
  const std::int64_t begin = end_of(static_cast<double>(first));
  const std::int64_t end = end_of(static_cast<double>(last));
  return static_cast<double>(done - begin) / static_cast<double>(end - begin);
}

double wsd(const LrSchedulerConfig& config, std::int64_t k) {
  const std::int64_t decay = config.wsd_decay_iters, begin = config.decay_iters - decay;
  if (k + 1 <= begin) return 1;
  const double s = std::min(1.0, static_cast<double>(k + 1 - begin) / static_cast<double>(decay));
  if (config.wsd_decay_style == "linear") return 1 - s;
  if (config.wsd_decay_style == "cosine") return cosine(s);
  if (config.wsd_decay_style == "exponential") return 2 * std::pow(0.5, s) - 1;
  if (config.wsd_decay_style == "minus_sqrt") return 1 - std::sqrt(s);
  throw RequestError("config: /scheduler/wsd_decay_style: unknown style " + config.wsd_decay_style);
}

}  // namespace

double learning_rate(const LrSchedulerConfig& config, double lr, std::int64_t k) {
  const std::int64_t w = config.warmup_iters;
  if (k < w) return lr * static_cast<double>(k + 1) / static_cast<double>(w);
  if (config.type == "constant") return lr;
  if (config.type == "piecewise") {
    const auto passed = std::count_if(config.milestones.begin(), config.milestones.end(),
                                      [&](std::int64_t m) { return k + 1 > m; });
    return std::max(config.min_lr, lr * std::pow(config.gamma, static_cast<double>(passed)));
  }
  const auto length = static_cast<double>(config.decay_iters - w);
  const double t = length <= 0 ? 1.0 : std::min(1.0, static_cast<double>(k + 1 - w) / length);
  const double range = lr - config.min_lr;
  if (config.type == "linear") return config.min_lr + range * (1 - t);
  if (config.type == "cosine") return config.min_lr + range * cosine(t);
  if (config.type == "cosine_with_restarts") {
    const std::int64_t whole = config.decay_iters - w;
    const double at = k + 1 - w >= whole ? 1.0 : within_cycle(config, k + 1 - w, whole);
    return config.min_lr + range * cosine(at);
  }
  if (config.type == "wsd") return config.min_lr + range * wsd(config, k);
  if (config.type == "polynomial") return config.min_lr + range * std::pow(1 - t, config.power);
  if (config.type == "exponential") return config.min_lr + range * std::pow(config.gamma, t);
  throw RequestError("config: /scheduler/type: unknown schedule " + config.type);
}

}  // namespace trident
