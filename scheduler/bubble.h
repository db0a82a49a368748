// The bubble of a run, from the traces of all ranks of one pipeline.
#pragma once

#include <vector>

#include "scheduler/execute.h"
#include "scheduler/simulate.h"

namespace trident {

// Times in seconds.
struct MeasuredBubble {
  // The executed list replayed with each action's CPU time as its duration and free transfers: what
  // the run would idle with a core for every rank (metrics: bubble_ratio).
  Bubble replayed;
  // From the wall clock as it was (metrics: bubble_ratio_wall). Where rank threads outnumber cores,
  // waiting for a core counts as work here.
  Bubble wall;
  // What the model says: the schedule simulated with free transfers and one time for each stage's
  // F, B and W, the mean of their CPU times in this run (metrics: bubble_predicted).
  Simulation predicted;
};

// `traces` are those of one iteration, [p], by pipeline rank. Their wall clocks have one zero: the
// same clock, or on several nodes each rank's time since a common barrier. Error, with rank and
// position, unless what ran is the schedule's list.
MeasuredBubble measure_bubble(const Schedule& schedule, const std::vector<ExecutionTrace>& traces);

}  // namespace trident
