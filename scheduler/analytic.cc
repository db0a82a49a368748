#include "scheduler/analytic.h"

#include <algorithm>

namespace trident {

namespace {

AnalyticBubble both(double ratio) {
  return {ratio, ratio};
}

// Converts an idle time to a ratio: the published zero-bubble formulas give the idle time of a rank
// in addition to its work.
double of_idle(const ScheduleRequest& r, const UniformTimes& times, double idle) {
  const double p = r.stages, m = r.microbatches;
  const double work = times.forward + times.backward_input + times.backward_weight;
  const double all = m * work + (p - 1) * idle;
  return all > 0.0 ? (p - 1) * idle / all : 0.0;
}

}  // namespace

AnalyticBubble naive_bubble(const ScheduleRequest& r, const UniformTimes&) {
  const double p = r.stages;
  return both((p - 1) / p);
}

AnalyticBubble flushed_bubble(const ScheduleRequest& r, const UniformTimes&) {
  const double p = r.stages, m = r.microbatches;
  return both((p - 1) / (m + p - 1));
}

AnalyticBubble interleaved_bubble(const ScheduleRequest& r, const UniformTimes& times) {
  return r.group_size == r.stages ? looped_bubble(r, times) : AnalyticBubble{};
}

AnalyticBubble looped_bubble(const ScheduleRequest& r, const UniformTimes&) {
  const double p = r.stages, m = r.microbatches, v = r.chunks;
  return m >= p ? both((p - 1) / (m * v + p - 1)) : AnalyticBubble{};
}

AnalyticBubble zb_h1_bubble(const ScheduleRequest& r, const UniformTimes& times) {
  const double f = times.forward, b = times.backward_input, w = times.backward_weight;
  return both(of_idle(r, times, std::max({f, b, f + b - w})));
}

AnalyticBubble zb_h2_bubble(const ScheduleRequest& r, const UniformTimes& times) {
  const double f = times.forward, b = times.backward_input, w = times.backward_weight;
  return {std::nullopt, of_idle(r, times, std::max({0.0, b - f, f + b - 2 * w}))};
}

AnalyticBubble zbv_bubble(const ScheduleRequest& r, const UniformTimes& times) {
  const double f = times.forward, b = times.backward_input, w = times.backward_weight;
  const bool equal = f == b && b == w;
  if (equal && r.microbatches >= 2 * r.stages - 1) return {std::nullopt, 0.0};
  return {};
}

AnalyticBubble asynchronous_bubble(const ScheduleRequest&, const UniformTimes&) {
  return both(0.0);
}

AnalyticBubble analytic_bubble(const ScheduleRequest& request, const UniformTimes& times) {
  const ScheduleKind& kind = kind_of(request);
  const ScheduleRequest completed = complete(request);
  return kind.analytic == nullptr ? AnalyticBubble{} : kind.analytic(completed, times);
}

}  // namespace trident
