// Times a schedule: from durations to start and end of every action, bubble and memory.
//
// Times have any one unit. Letters as in action.h; F forward, B gradient of the input, W gradient
// of the weights, C one transfer.
#pragma once

#include <vector>

#include "scheduler/action.h"

namespace trident {

// Time of one micro-batch through each stage, [p*v]. A full backward takes input plus weight.
struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
};

// Time of one micro-batch through a rank's whole share (all its chunks): one number for all ranks
// or [p] numbers.
struct ShareTimes {
  std::vector<double> forward{1.0};
  std::vector<double> backward_input{1.0};
  std::vector<double> backward_weight{1.0};
};

// A chunk takes 1/v of its rank's share. RequestError for another count or a negative time.
StageTimes stage_times(const Schedule& schedule, const ShareTimes& times);

struct TimedAction {
  double start = 0.0;
  double end = 0.0;
};

// Bubbles of the schedule or of a run. A rank's bubble_ratio is (T - its own work) / T with T the
// makespan; bubble_ratio_span takes for T the longest span of one rank, from its first start to its
// last end. The schedule's is the mean over ranks. 0 where T is 0. For asynchronous schedules,
// which fill and drain once in a run and not once an iteration, both count what lies between the
// first and the last update (end of a weight gradient): of all ranks, and for the span of each
// rank.
struct Bubble {
  double makespan = 0.0;                // first start to last end of all ranks
  double longest_span = 0.0;            // of one rank
  std::vector<double> rank_ratio;       // [p]
  std::vector<double> rank_ratio_span;  // [p]
  double ratio = 0.0;
  double ratio_span = 0.0;
};

struct Simulation {
  std::vector<std::vector<TimedAction>> actions;  // [p], parallel to Schedule::ranks
  Bubble bubble;
};

// Every action starts as soon as its rank is free and its input is there: `transfer` after the end
// of the action that makes it when that is on another rank, at once inside a rank. A fused pair
// starts when both inputs are there, takes both times, and gives both outputs at its end. Transfers
// take no compute time and links never queue. Time and memory linear in the number of actions. The
// schedule must be valid (validate.h); Error if it deadlocks.
Simulation simulate(const Schedule& schedule, const StageTimes& times, double transfer = 0.0);

// The same with a duration for each action of each rank, parallel to Schedule::ranks (as measured).
Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  double transfer = 0.0);
// And with a transfer time for each stage whose output is sent, [p*v]: of its activations, and of
// the gradients that it sends back.
struct TransferTimes {
  std::vector<double> forward, backward;
};
Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  const TransferTimes& transfers);

// A rank's idle time within the makespan, by why: `warmup` before its first backward, `drain` after
// its last forward, `steady` between; `transfer` is the part of any of them in which the awaited
// input was made already by another rank and on its way (in a run the time to wake up, too).
struct IdleTime {
  double warmup = 0.0, steady = 0.0, drain = 0.0, transfer = 0.0;
};

// Of each rank, [p], of what was simulated, or ran.
std::vector<IdleTime> idle_by_reason(const Schedule& schedule, const Simulation& simulation);

// The bubble of actions that began and ended as said, parallel to Schedule::ranks.
Bubble bubble_of(const Schedule& schedule, const std::vector<std::vector<TimedAction>>& ranks);

// Most micro-batches that each rank holds at once, in micro-batches' worth of its whole share (a
// chunk counts 1/v), held from F until W or B. Of what an F keeps, W needs `kept_for_weights`; the
// rest goes with I (M_W / M_B in Qi et al. 2023, table 1).
std::vector<double> peak_in_flight(const Schedule& schedule, double kept_for_weights = 1.0);

// Bounds of it.
struct MemoryLimit {
  std::vector<double> most = {};  // of each rank, [p]; or one number for all; none: no limit
  double kept_for_weights = 1.0;  // in [0, 1]
  bool any() const { return most.empty(); }
  double of(int rank) const { return most.size() == 1 ? most[0] : most.at(rank); }
};

// Most versions of its weights that each rank keeps at once, [p]: those that backwards still need
// and, under PipeDream-2BW, the one that is being made.
std::vector<int> weight_versions(const Schedule& schedule);

}  // namespace trident
