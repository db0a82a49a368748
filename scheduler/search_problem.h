// What a search for a schedule is given: whose list it makes, for which times, in which room.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/schedules.h"

namespace trident {

struct SearchProblem {
  Schedule empty;    // sizes and placement; no actions
  StageTimes times;  // [p*v]
  double transfer = 0.0;
  std::vector<double> room;       // chunk forwards that each rank may hold, [p]
  double kept_for_weights = 1.0;  // of a chunk forward, from I until W

  // `times` where they are of this placement, else the request's shares.
  static SearchProblem of(const ScheduleRequest&, Schedule empty);
  // Of what a rank holds when it has run forwards, input and weight gradients of so many chunks.
  double held(int forwards, int inputs, int weights) const {
    return (forwards - inputs) + (inputs - weights) * kept_for_weights;
  }
};

// How many more actions a search may simulate, and until when.
class Effort {
 public:
  // This part of the whole: of the seconds from now on or, for 0 seconds, of a count of actions
  // that takes about one, so that every process finds the same.
  Effort(double seconds, double part);
  // Whether so many more may be simulated; counts them.
  bool spend(double actions);

 private:
  double left_;
  std::int64_t until_ = 0;  // of the steady clock, nanoseconds; 0: no matter
};

}  // namespace trident
