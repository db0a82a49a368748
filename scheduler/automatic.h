// A schedule found by search, for given times and memory.
#pragma once

#include "scheduler/schedules.h"

namespace trident {

// The shortest makespan, for request.times and request.transfer, of all schedules it can make that
// hold at most request.max_in_flight (0: any number) micro-batches on each rank: every other
// synchronous kind of these sizes, and lists built in time order by a few dozen greedy rules (as in
// Qi et al. 2023, section 3.1, whose heuristic also tries several), with one chunk a rank and with
// two over a V. request.chunks, if not 0, keeps to that number. Weight gradients of a stage come in
// the order of the micro-batches unless looped_bfs wins. Deterministic; its time is bounded by a
// count of actions (some seconds). RequestError where nothing fits, with the least that does.
Schedule automatic(const ScheduleRequest& request);

}  // namespace trident
