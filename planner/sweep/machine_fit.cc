#include "planner/sweep/machine_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/median.h"
#include "engine/setup/registry.h"
#include "planner/simulation/step_simulation.h"

namespace trident {
namespace {

constexpr std::size_t constants = 3;
using Vector = std::array<double, constants>;

std::array<double*, constants> constants_of(Machine& machine) {
  return {&machine.efficiency.products, &machine.efficiency.memory, &machine.efficiency.links};
}

Machine moved(Machine machine, const Vector& logarithms) {
  const auto values = constants_of(machine);
  for (std::size_t i = 0; i < constants; ++i) {
    *values[i] = std::clamp(*values[i] * std::exp(logarithms[i]), 1e-6, machine.most_efficiency());
  }
  return machine;
}

std::vector<double> predictions(const Machine& machine, const std::vector<FitPoint>& points) {
  std::vector<double> seconds;
  for (const FitPoint& point : points) {
    seconds.push_back(predicted_seconds(*point.config, machine, point.replayed));
  }
  return seconds;
}

// Solves a · x = b by elimination; a is symmetric and positive definite.
Vector solved(std::array<Vector, constants> a, Vector b) {
  for (std::size_t i = 0; i < constants; ++i) {
    for (std::size_t j = i + 1; j < constants; ++j) {
      const double part = a[j][i] / a[i][i];
      for (std::size_t k = i; k < constants; ++k) a[j][k] -= part * a[i][k];
      b[j] -= part * b[i];
    }
  }
  for (std::size_t i = constants; i-- > 0;) {
    for (std::size_t k = i + 1; k < constants; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

// Solves the same, but doesn't increase constants that are at the largest value of a machine's
// file.
Vector solved_within(Machine machine, std::array<Vector, constants> a, Vector b) {
  const auto values = constants_of(machine);
  for (std::size_t tries = 0; tries <= constants; ++tries) {
    const Vector by = solved(a, b);
    bool grew = false;
    for (std::size_t c = 0; c < constants; ++c) {
      if (by[c] <= 0 || *values[c] < machine.most_efficiency()) continue;
      grew = true;
      for (std::size_t d = 0; d < constants; ++d) a[c][d] = a[d][c] = c == d ? 1 : 0;
      b[c] = 0;
    }
    if (!grew) return by;
  }
  return {};
}

// Returns the logarithms of the constants' ratios, `to` over `from`.
Vector moves_between(Machine from, Machine to) {
  Vector moves{};
  const auto before = constants_of(from), after = constants_of(to);
  for (std::size_t c = 0; c < constants; ++c) moves[c] = std::log(*after[c] / *before[c]);
  return moves;
}

// Returns ranks, from 0. Values within `noise` of the first of them get their mean rank.
std::vector<double> ranks_of(const std::vector<double>& values, double noise) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] <= values[order[begin]] * (1 + noise)) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  if (aa == 0 || bb == 0) return aa == bb ? 1 : 0;
  return ab / std::sqrt(aa * bb);
}

}  // namespace

double predicted_seconds(const Config& config, const Machine& machine, bool replayed) {
  const Architecture& architecture = *architecture_of(config);
  const auto simulated = replayed ? simulate_crowded : simulate_step;
  return simulated(config, architecture, machine,
                   Assumptions::of(config.zero_optimization, config.parallel), {})
      .seconds;
}

Agreement agreement(const std::vector<double>& predicted, const std::vector<double>& measured,
                    double noise) {
  Agreement result;
  if (predicted.empty()) return result;
  std::vector<double> errors;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    errors.push_back(std::abs(predicted[i] / measured[i] - 1));
  }
  std::sort(errors.begin(), errors.end());
  result.median_error = median(errors);
  result.ninth_decile =
      errors[static_cast<std::size_t>(std::lround(0.9 * static_cast<double>(errors.size() - 1)))];
  result.order = correlation(ranks_of(predicted, noise), ranks_of(measured, noise));
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  result.choice = measured[static_cast<std::size_t>(chosen)] /
                      *std::min_element(measured.begin(), measured.end()) -
                  1;
  return result;
}

void need_points_to_fit(std::size_t points) {
  if (points >= constants) return;
  throw RequestError(
      fmt::format("--fit: {} of the points have predictions; {} constants need as many or more",
                  points, constants));
}

MachineFit fit_machine(const Machine& machine, const std::vector<FitPoint>& points) {
  need_points_to_fit(points.size());
  MachineFit fit{machine, predictions(machine, points), {}};
  fit.after = fit.before;
  const auto error_of = [&](const std::vector<double>& predicted) {
    double sum = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      sum += std::pow(std::log(predicted[i] / points[i].seconds), 2);
    }
    return sum;
  };
  // The step is downward, since a constant at its largest value can only fall.
  constexpr double step = -0.02;
  // Constants that the points hardly determine stay near their start: an error of 3% costs as much
  // as a constant that is half as large again.
  constexpr double tie = 0.005;
  Vector apart{};
  const auto cost_of = [&](const std::vector<double>& predicted, const Vector& moves) {
    double sum = error_of(predicted);
    for (const double one : moves) sum += tie * one * one;
    return sum;
  };
  for (int round = 0; round < 20; ++round) {
    std::array<Vector, constants> normal{};
    Vector right{};
    std::vector<Vector> slopes(points.size());
    for (std::size_t c = 0; c < constants; ++c) {
      Vector by{};
      by[c] = step;
      const std::vector<double> there = predictions(moved(fit.machine, by), points);
      for (std::size_t i = 0; i < points.size(); ++i) {
        slopes[i][c] = std::log(there[i] / fit.after[i]) / step;
      }
    }
    for (std::size_t c = 0; c < constants; ++c) {
      normal[c][c] = tie, right[c] = -tie * apart[c];
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double off = std::log(points[i].seconds / fit.after[i]);
      for (std::size_t c = 0; c < constants; ++c) {
        right[c] += slopes[i][c] * off;
        for (std::size_t d = 0; d < constants; ++d) normal[c][d] += slopes[i][c] * slopes[i][d];
      }
    }
    Vector by = solved_within(fit.machine, normal, right);
    for (double& one : by) one = std::clamp(one, -1.0, 1.0);
    // A step that overshoots is halved: where times depend on the constants far from linearly, the
    // full step can be worse than none.
    const double before = cost_of(fit.after, apart);
    double after = before;
    for (int halvings = 0; halvings < 8 && after >= before; ++halvings) {
      const Machine next = moved(fit.machine, by);
      std::vector<double> there = predictions(next, points);
      const Vector moves = moves_between(machine, next);
      if (const double cost = cost_of(there, moves); cost < before) {
        fit.machine = next, fit.after = std::move(there), apart = moves, after = cost;
      }
      for (double& one : by) one /= 2;
    }
    if (after > 0.999 * before) break;
  }
  return fit;
}

}  // namespace trident
