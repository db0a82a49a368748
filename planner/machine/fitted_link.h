// A link's rate and latency from the times of all-reduces over it.
#pragma once

#include <vector>

#include "planner/machine/machine.h"

namespace trident {

struct TimedAllReduce {
  double bytes = 0, seconds = 0;  // of the message, and of one call on the slowest rank
};

// Fits the times of ring all-reduces over `ranks` ranks, from the smallest message to the largest:
// the smallest message shows the latency, the others the bandwidth. Where latency hides the
// bandwidth (a busy machine), the complete time of the largest message counts as transfer, so that
// the bandwidth is always a number above 0. `times` has at least one element.
Machine::Link fitted_link(const std::vector<TimedAllReduce>& times, int ranks);

}  // namespace trident
