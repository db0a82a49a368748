#include "scheduler/analytic.h"

namespace trident {

std::optional<AnalyticBubble> analytic_bubble(const ScheduleRequest& request) {
  const ScheduleRequest r = complete(request);
  const double p = r.stages, m = r.microbatches, v = r.chunks;
  double ratio = 0.0;
  if (r.kind == "naive") {
    ratio = (p - 1) / p;
  } else if (r.kind == "gpipe" || r.kind == "1f1b") {
    ratio = (p - 1) / (m + p - 1);
  } else if (r.kind == "interleaved_1f1b" && r.group_size == r.stages) {
    ratio = (p - 1) / (m * v + p - 1);
  } else {
    return std::nullopt;
  }
  return AnalyticBubble{ratio, ratio};
}

double one_f_one_b_makespan(int stages, int microbatches, const UniformTimes& times,
                            double transfer) {
  const double p = stages, m = microbatches;
  const double share = times.forward + times.backward_input + times.backward_weight;
  return (m + p - 1) * share + transfer * (2 * (p - 1) * (m / p + 1) - 2);
}

}  // namespace trident
