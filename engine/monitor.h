// Measures a training step on all ranks: bubble, bytes sent, memory, and what its timeline shows
// (engine/step_timeline.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/stepper.h"
#include "parallel/operation_log.h"
#include "parallel/process_group.h"
#include "scheduler/timeline.h"

namespace trident {

// Known on world rank 0.
struct StepFigures {
  // Of all pipelines' mean, durations in CPU time (scheduler/bubble.h). Of asynchronous schedules,
  // which no iteration fills and drains, over the last iterations that have 4p micro-batches.
  double bubble_ratio = 0;
  double bubble_ratio_wall = 0;                     // by the clock
  double bubble_predicted = 0;                      // by the schedule and this step's F, B, W
  std::vector<double> rank_bubble_ratio;            // bubble_ratio of each pipeline rank, [p]
  std::map<std::string, std::int64_t> bytes_sent;   // summed over ranks, by group
  std::map<std::string, std::int64_t> peak_memory;  // bytes of the largest rank, by category
  // Where the step went, milliseconds by the wall clock, the ranks' mean: "products" and "kernels"
  // (all others; both where kernels are timed, KernelClock), "waiting" for other ranks of the
  // pipeline, and "rest": collectives, messages and the host. Together they are the step.
  std::map<std::string, double> parts_ms;
  // The step with a core for every rank and free transfers: the executed list replayed by CPU time,
  // and the longest rank's CPU time after it. None of asynchronous schedules, whose iterations
  // overlap.
  std::optional<double> replayed_ms;
  Timeline timeline;   // filled where asked for
  Timeline predicted;  // of the first pipeline, where asked for
};

// What a rank tells of the times of a step.
struct RankTimes {
  StepClock clock;
  double kernel_ms[2] = {};  // products, others
};

// What the report of a step takes of a rank's memory (communication), where no rank runs more than
// `actions` and so many groups' traffic counts; rank 0 holds those of all ranks beside its own.
std::int64_t report_bytes(std::int64_t actions, std::size_t groups);

class Monitor {
 public:
  // `group`: all ranks, a group of the monitor's own, so that its traffic is not counted.
  Monitor(const Stepper& stepper, ProcessGroup group);
  // Before a step. `drawn`: what its groups carry out is logged, for its timeline.
  void begin(bool drawn = false);
  void end();  // after it: every rank's figures go to rank 0, nobody waits
  // Of the earliest step that has ended and was not collected; with its timeline if it was begun
  // so. Every rank takes part.
  StepFigures collect();

 private:
  // A step whose figures are on their way.
  struct Ended {
    const IterationLists::Iteration* executed;
    Work work;
    Tensor sent, all;  // `all` on rank 0
    bool drawn = false;
    std::vector<LoggedOperation> operations;  // of this rank
  };
  // One that came, with the traces of all ranks.
  struct Ran {
    const IterationLists::Iteration* executed;
    std::vector<ExecutionTrace> traces;
  };
  // Nanoseconds of products and of other kernels since the last call.
  std::pair<std::int64_t, std::int64_t> take_kernel_times();
  std::vector<std::int64_t> sent() const;  // by traffic group
  // Those of all ranks, on rank 0, in pieces of at most so many bytes a rank.
  std::vector<std::vector<LoggedOperation>> gather(const std::vector<LoggedOperation>& own,
                                                   std::int64_t bytes);
  // The parts of collect() on rank 0.
  void remember(const IterationLists::Iteration* executed, std::vector<ExecutionTrace> traces);
  void measure_bubbles(StepFigures& figures) const;
  void divide(StepFigures& figures, const std::vector<RankTimes>& ranks) const;
  // What `pipeline` (world ranks) ran in recent_, as one list, and its traces.
  std::pair<Schedule, std::vector<ExecutionTrace>> joined(const std::vector<int>& pipeline) const;

  const Stepper& stepper_;
  ProcessGroup group_;
  std::vector<TrafficGroup> counted_;
  std::shared_ptr<OperationLog> log_ = std::make_shared<OperationLog>();
  bool drawn_ = false;  // the step that runs
  std::vector<std::int64_t> before_;
  std::int64_t products_before_ = 0, kernels_before_ = 0;  // KernelClock
  std::deque<Ended> ended_;
  std::deque<Ran> recent_;  // on rank 0
};

}  // namespace trident
