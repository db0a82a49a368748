#include "report/run_speed.h"

#include <algorithm>
#include <cmath>

namespace trident {

RunSpeed total_of(std::span<const IterationMetrics> history, const RateOf& rate_of) {
  RunSpeed speed;
  double tokens = 0, flops = 0, rated_flops = 0, possible = 0;
  for (const IterationMetrics& m : history) {
    const double seconds = 1e-3 * m.iteration_time_ms;
    if (!(seconds > 0) || !std::isfinite(seconds)) continue;
    const auto part = [&](double per_second) {
      return std::isfinite(per_second) ? per_second * seconds : 0.0;
    };
    const double own = part(1e12 * m.tflops), rate = rate_of ? rate_of(m) : 0;
    ++speed.iterations;
    speed.seconds += seconds;
    tokens += part(m.tokens_per_second);
    flops += own;
    if (rate > 0) rated_flops += own, possible += rate * seconds;
    speed.bubble_ratio += part(m.bubble_ratio);
    speed.bubble_ratio_wall += part(m.bubble_ratio_wall);
    speed.bubble_predicted += part(m.bubble_predicted);
  }
  if (!(speed.seconds > 0)) return speed;
  speed.tokens_per_second = tokens / speed.seconds;
  speed.step_ms = 1e3 * speed.seconds / static_cast<double>(speed.iterations);
  speed.flops_per_second = flops / speed.seconds;
  if (possible > 0) speed.mfu = std::min(1.0, rated_flops / possible);
  for (double* const ratio :
       {&speed.bubble_ratio, &speed.bubble_ratio_wall, &speed.bubble_predicted}) {
    *ratio /= speed.seconds;
  }
  return speed;
}

RunSpeed speed_of(const std::vector<IterationMetrics>& history, const RateOf& rate_of) {
  const bool without = history.size() > 1 && history.front().iteration == 1;
  RunSpeed speed = total_of(std::span(history).subspan(without ? 1 : 0), rate_of);
  speed.without_first = without;
  return speed;
}

RunRates::RunRates(const RunAbout& about, const std::vector<IterationMetrics>& history) {
  for (const RunStart& start : about.starts) {
    const JobRate rate{start.machines, about.best_rates};
    parts_.push_back({start.after, start.machines.empty() ? 0 : rate.total()});
  }
  if (parts_.empty()) parts_.emplace_back();
  // Starts in a damaged file may have any order.
  std::ranges::stable_sort(parts_, {}, &Part::after);
  std::vector<double> reached(parts_.size()), written(parts_.size());
  for (const IterationMetrics& m : history) {
    const double flops = 1e12 * m.tflops;
    if (!(flops > 0) || !std::isfinite(flops)) continue;
    std::size_t at = 0;
    while (at + 1 < parts_.size() && parts_[at + 1].after < m.iteration) ++at;
    reached[at] = std::max(reached[at], flops);
    if (m.mfu > 0 && std::isfinite(flops / m.mfu)) {
      written[at] = std::max(written[at], flops / m.mfu);
    }
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    double& rate = parts_[i].rate;
    if (rate <= 0) rate = written[i];
    if (rate > 0) rate = std::max(rate, reached[i]);
  }
}

double RunRates::of(std::int64_t iteration) const {
  double rate = parts_.front().rate;
  for (const Part& part : parts_) {
    if (part.after < iteration) rate = part.rate;
  }
  return rate;
}

double RunRates::mfu(const IterationMetrics& m) const {
  const double rate = of(m.iteration);
  return rate > 0 ? std::min(1.0, 1e12 * m.tflops / rate) : 0;
}

}  // namespace trident
