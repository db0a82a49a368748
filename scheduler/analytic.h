// What theory says of a schedule: the published formulas, for equal stages and free transfers.
#pragma once

#include <optional>

#include "scheduler/schedules.h"

namespace trident {

// Time of one micro-batch through one rank's whole share, the same on all ranks.
struct UniformTimes {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
};

struct AnalyticBubble {
  double bubble_ratio = 0.0;  // as Bubble in simulate.h defines both
  double bubble_ratio_span = 0.0;
};

// Fraction of the makespan that a rank idles, with C = 0 (T = F + B + W):
//   naive             (p-1)/p
//   gpipe, 1f1b       (p-1)/(m+p-1)        idle time (p-1)T (Huang 2019, Narayanan 2021)
//   interleaved_1f1b  (p-1)/(mv+p-1)       idle time (p-1)T/v, for groups of p micro-batches
// None for interleaved_1f1b with other groups. RequestError as make_schedule.
// In these kinds rank 0 is busy from the first start to the last end, so both ratios are equal, and
// none depends on the times.
std::optional<AnalyticBubble> analytic_bubble(const ScheduleRequest& request);

// Makespan of 1F1B with transfers of C, C small beside F, B, W, p > 1 and p dividing m:
// (m+p-1)(F+B+W) + C(2(p-1)(m/p+1) - 2).
double one_f_one_b_makespan(int stages, int microbatches, const UniformTimes& times,
                            double transfer);

}  // namespace trident
