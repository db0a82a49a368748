// The bubble of a run, computed from the traces of all ranks of one pipeline. Pure functions; not
// collective.
#pragma once

#include <vector>

#include "scheduler/execute.h"
#include "scheduler/simulate.h"

namespace trident {

// Times are in seconds.
struct MeasuredBubble {
  // The executed list replayed with each action's CPU time as its duration and free transfers. It
  // is the bubble that the run would have with one core per rank (metrics: bubble_ratio).
  Bubble replayed;
  // The bubble by wall clock (metrics: bubble_ratio_wall). Where rank threads outnumber cores,
  // waiting for a core counts as work here.
  Bubble wall;
  // The bubble that the model predicts (metrics: bubble_predicted). It simulates the schedule with
  // free transfers and one time for each stage's F, B and W: the mean of their CPU times in this
  // run.
  Simulation predicted;
};

// `traces` [p] are the traces of one iteration, by pipeline rank. Their wall clocks need a common
// zero: one clock or, on several nodes, each rank's time since a common barrier. Throws Error, with
// rank and position, if the executed actions differ from the schedule's list.
MeasuredBubble measure_bubble(const Schedule& schedule, const std::vector<ExecutionTrace>& traces);

}  // namespace trident
