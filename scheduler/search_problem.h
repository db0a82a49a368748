// The input of a search for a schedule: sizes and placement, times, memory, and a limit on the
// search.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/schedules.h"

namespace trident {

struct SearchProblem {
  Schedule empty;    // sizes and placement; no actions
  StageTimes times;  // [p*v]
  double transfer = 0.0;
  std::vector<double> memory_limit;  // memory of each rank [p], in chunk forwards
  double kept_for_weights = 1.0;     // share of a chunk forward kept from I until W

  // Uses request.stage_times if they have one time per stage of `empty`, else request.times.
  static SearchProblem of(const ScheduleRequest&, Schedule empty);
  // The chunk forwards held by a rank after these numbers of forwards, input and weight gradients.
  double held(int forwards, int inputs, int weights) const {
    return (forwards - inputs) + (inputs - weights) * kept_for_weights;
  }
};

// The limit on a search: a number of simulated actions or a time.
class Effort {
 public:
  // A share `part` of the total limit. The total is `seconds` from now on or, if that is 0, a count
  // of actions that takes about one second, so that every process finds the same schedule.
  Effort(double seconds, double part);
  // Spends `actions` simulated actions. False once the limit is exceeded.
  bool spend(double actions);

 private:
  double left_;
  std::int64_t until_ = 0;  // steady clock, nanoseconds; 0: no time limit
};

}  // namespace trident
