#include "training/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace trident {

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
  if (config.type == "cosine") {
    return config.min_lr + range * (1 + std::cos(std::numbers::pi * t)) / 2;
  }
  if (config.type == "polynomial") return config.min_lr + range * std::pow(1 - t, config.power);
  if (config.type == "exponential") return config.min_lr + range * std::pow(config.gamma, t);
  throw RequestError("config: /scheduler/type: unknown schedule " + config.type);
}

}  // namespace trident
