#include "scheduler/analytic.h"

#include <algorithm>

namespace trident {

AnalyticBubble analytic_bubble(const ScheduleRequest& request, const UniformTimes& times) {
  const ScheduleRequest r = complete(request);
  const double p = r.stages, m = r.microbatches, v = r.chunks;
  const double f = times.forward, b = times.backward_input, w = times.backward_weight;
  const auto both = [](double ratio) { return AnalyticBubble{ratio, ratio}; };
  if (r.kind == "naive") return both((p - 1) / p);
  if (r.kind == "gpipe" || r.kind == "1f1b") return both((p - 1) / (m + p - 1));
  if ((r.kind == "interleaved_1f1b" && r.group_size == r.stages) ||
      (r.kind == "looped_bfs" && m >= p)) {
    return both((p - 1) / (m * v + p - 1));
  }
  // The published zero-bubble formulas give a rank's idle time beside its work.
  const auto of_idle = [&](double idle) {
    const double all = m * (f + b + w) + (p - 1) * idle;
    return all > 0.0 ? (p - 1) * idle / all : 0.0;
  };
  if (r.kind == "zb_h1") return both(of_idle(std::max({f, b, f + b - w})));
  if (r.kind == "zb_h2") return {std::nullopt, of_idle(std::max({0.0, b - f, f + b - 2 * w}))};
  if (r.kind == "pipedream" || r.kind == "pipedream_2bw") return both(0.0);
  if (r.kind == "zbv" && f == b && b == w && m >= 2 * p - 1) return {std::nullopt, 0.0};
  return {};
}

double one_f_one_b_makespan(int stages, int microbatches, const UniformTimes& times,
                            double transfer) {
  const double p = stages, m = microbatches;
  const double share = times.forward + times.backward_input + times.backward_weight;
  return (m + p - 1) * share + transfer * (2 * (p - 1) * (m / p + 1) - 2);
}

}  // namespace trident
