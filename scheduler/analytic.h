// The published formulas for the bubble of each schedule, for equal stages and free transfers. Pure
// functions; any thread may call them.
#pragma once

#include <optional>

#include "scheduler/schedules.h"

namespace trident {

// The time of one micro-batch through all chunks of one rank, equal on all ranks.
struct UniformTimes {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
};

struct AnalyticBubble {  // Bubble in simulate.h defines both; none where no formula exists
  std::optional<double> bubble_ratio;
  std::optional<double> bubble_ratio_span;
};

// The formulas of the registry's rows. Each takes a completed request. The result is the fraction
// of the makespan (or of the longest span of a rank) for which a rank is idle, with C = 0 and T = F
// + B + W:
//   naive             (p-1)/p
//   gpipe, 1f1b       (p-1)/(m+p-1)        idle time (p-1)T (Huang 2019, Narayanan 2021)
//   interleaved_1f1b  (p-1)/(mv+p-1)       idle time (p-1)T/v, for groups of p micro-batches
//   looped_bfs        (p-1)/(mv+p-1)       for m >= p (Lamy-Poirier 2023)
//   zb_h1             idle time (p-1) max(F, B, F+B-W) (Qi 2023); an upper bound where F > B
//   zb_h2             by span, idle time (p-1) max(0, B-F, F+B-2W) (Qi 2023)
//   pipedream, pipedream_2bw  0 in steady state; a simulated run lacks its last p-1 forwards
//   zbv               by span, 0 where F = B = W and m >= 2p-1 (Qi 2024)
AnalyticBubble naive_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble flushed_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble interleaved_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble looped_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble zb_h1_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble zb_h2_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble zbv_bubble(const ScheduleRequest&, const UniformTimes&);
AnalyticBubble asynchronous_bubble(const ScheduleRequest&, const UniformTimes&);

// The formulas of the request's schedule. Throws RequestError as make_schedule does.
AnalyticBubble analytic_bubble(const ScheduleRequest& request, const UniformTimes& times = {});

}  // namespace trident
