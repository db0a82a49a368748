// Simulates a schedule: it computes start and end of every action, bubbles and memory from
// durations. Pure functions; any thread may call them.
//
// Times may have any unit. Letters as in action.h; F forward, B gradient of the input, W gradient
// of the weights, C one transfer.
#pragma once

#include <vector>

#include "scheduler/action.h"

namespace trident {

// The time of one micro-batch through each stage, [p*v]. A full backward takes input plus weight.
struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
};

// The time of one micro-batch through all chunks of a rank: one number for all ranks or [p]
// numbers.
struct ShareTimes {
  std::vector<double> forward{1.0};
  std::vector<double> backward_input{1.0};
  std::vector<double> backward_weight{1.0};
};

// Divides each rank's time equally among its v chunks. Throws RequestError for another count of
// numbers or a negative time.
StageTimes stage_times(const Schedule& schedule, const ShareTimes& times);

struct TimedAction {
  double start = 0.0;
  double end = 0.0;
};

// The bubbles of a schedule or of a run. A rank's bubble_ratio is (T - its own work) / T with T the
// makespan. For bubble_ratio_span, T is the longest span of one rank, from its first start to its
// last end. The schedule's ratio is the mean over ranks. A ratio is 0 where T is 0. An asynchronous
// schedule fills and drains once per run and not once per iteration. For it both ratios count only
// the time between the first and the last update (end of a weight gradient): of all ranks, and for
// the span of each rank.
struct Bubble {
  double makespan = 0.0;                // from the first start to the last end of all ranks
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

// Every action starts as soon as its rank is free and its input has arrived. An input from another
// rank arrives `transfer` after the end of the action that makes it, an input from the same rank at
// once. A fused pair starts when both inputs have arrived, takes the sum of both times, and
// releases both outputs at its end. Transfers take no compute time and links never queue. Time and
// memory are linear in the number of actions. The schedule must be valid (validate.h). Throws Error
// if it deadlocks.
Simulation simulate(const Schedule& schedule, const StageTimes& times, double transfer = 0.0);

// As simulate(), with a duration for each action of each rank, parallel to Schedule::ranks (for
// example measured).
Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  double transfer = 0.0);
// The transfer time of each stage whose output is sent, [p*v]: of its activations, and of the
// gradients that it sends back.
struct TransferTimes {
  std::vector<double> forward, backward;
};
Simulation replay(const Schedule& schedule, const std::vector<std::vector<double>>& durations,
                  const TransferTimes& transfers);

// A rank's idle time within the makespan, by reason: `warmup` before its first backward, `drain`
// after its last forward, `steady` between. `transfer` is the part in which another rank had
// already made the awaited input and the input was in transit (in a real run, also the time to wake
// up).
struct IdleTime {
  double warmup = 0.0, steady = 0.0, drain = 0.0, transfer = 0.0;
};

// The idle time of each rank, [p], in a simulation or a measured run.
std::vector<IdleTime> idle_by_reason(const Schedule& schedule, const Simulation& simulation);

// The bubble of actions with these start and end times, parallel to Schedule::ranks.
Bubble bubble_of(const Schedule& schedule, const std::vector<std::vector<TimedAction>>& ranks);

// The most micro-batches that each rank holds at once. A chunk counts 1/v. A micro-batch is held
// from F until W or B. W needs the share `kept_for_weights` of the memory that F keeps; I frees the
// rest (M_W / M_B in Qi et al. 2023, table 1).
std::vector<double> peak_in_flight(const Schedule& schedule, double kept_for_weights = 1.0);

// Limits on peak_in_flight().
struct MemoryLimit {
  std::vector<double> most = {};  // of each rank, [p], or one number for all; empty: no limit
  double kept_for_weights = 1.0;  // in [0, 1]
  bool unlimited() const { return most.empty(); }
  double of(int rank) const { return most.size() == 1 ? most[0] : most.at(rank); }
};

// The most versions of its weights that each rank keeps at once, [p]: the versions that backwards
// still need and, under PipeDream-2BW, the version being made.
std::vector<int> weight_versions(const Schedule& schedule);

}  // namespace trident
