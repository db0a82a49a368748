// The common part of the interleaved schedules: groups of micro-batches pass through a rank's
// chunks in turn.
#pragma once

#include <string>

#include "scheduler/schedules.h"

namespace trident {

// Every rank runs its chunk forwards in the same order: groups of g micro-batches through the
// chunks 0 ... v-1. Rank r first runs min(lead(p-r-1) + (v-1)g, mv) of them; then pairs of a
// forward and a backward; then the remaining backwards. Backwards take the same order with chunk
// v-1-chunk. With `split`, backwards are I, the oldest W follows each from the r-th on, and the
// remaining W come at the end.
Schedule interleaved(const ScheduleRequest& request, int lead, bool split);

// The group size. The default (`group_size` 0) is p where p divides m, else m / max(1, floor(m/p))
// where that is an integer. A given group size has to be the default or satisfy p <= g <= m with m
// mod g zero or >= p. Else throws a RequestError that names `kind`.
int interleaved_group_size(const std::string& kind, int stages, int microbatches, int group_size);

}  // namespace trident
