// What the interleaved schedules share: groups of micro-batches that go through a rank's chunks in
// turn.
#pragma once

#include <string>

#include "scheduler/schedules.h"

namespace trident {

// Chunk-forwards in one order on every rank: groups of g micro-batches through the chunks 0 ...
// v-1. Rank r runs min(lead(p-r-1) + (v-1)g, mv) of them at first; then pairs of a forward and a
// backward; then the remaining backwards, which take the same order with chunk v-1-chunk. `split`:
// backwards are I, and from the r-th on the oldest W; the remaining W at the end.
Schedule interleaved(const ScheduleRequest& request, int lead, bool split);

// The group size: p where p divides m, else m / max(1, floor(m/p)) where that is whole, else a
// RequestError of `kind`. A given one is that or has p <= g <= m and m mod g zero or >= p.
int interleaved_group_size(const std::string& kind, int stages, int microbatches, int group_size);

}  // namespace trident
