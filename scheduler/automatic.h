// A schedule found by search, for given times and memory.
#pragma once

#include "scheduler/schedules.h"

namespace trident {

// The shortest by request.objective, for request.times and request.transfer, of all that it finds
// within request.memory: every other synchronous kind of these sizes, and lists built in time order
// by rules (greedy.h; as in Qi et al. 2023, section 3.1, whose heuristic also tries several), with
// one chunk a rank and with two over a V, of which the best are made shorter by local search
// (local_search.h). request.chunks, if not 0, keeps to that number. Weight gradients of a stage
// come in the order of the micro-batches unless looped_bfs wins. Without request.search_seconds
// deterministic, its time bounded by a count of actions (about a second). What no schedule can be
// shorter than: lower_bound.h. RequestError where nothing fits, with the least that does.
Schedule automatic(const ScheduleRequest& request);

}  // namespace trident
