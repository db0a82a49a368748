// The schedule `auto`, which a search finds for given times and memory.
#pragma once

#include "scheduler/schedules.h"

namespace trident {

// Returns the shortest schedule found by request.objective, for request.times and request.transfer,
// within request.memory. The candidates are every other synchronous schedule of these sizes and
// lists built in time order by greedy rules (greedy.h; as in Qi et al. 2023, section 3.1, whose
// heuristic also tries several), with one chunk per rank and with two in a V. Local search
// (local_search.h) shortens the best of them. A request.chunks other than 0 fixes the number of
// chunks. The weight gradients of a stage come in the order of the micro-batches unless looped_bfs
// wins. The result is deterministic if request.search_seconds is 0: a count of actions then limits
// the search (to about a second). lower_bound.h has the lower bound of any schedule. Throws
// RequestError where no schedule fits the memory, with the smallest peak found.
Schedule automatic(const ScheduleRequest& request);

}  // namespace trident
