// Measures a training step on all ranks: bubble, bytes sent, memory, and the operations in its
// timeline (engine/step_timeline.h). All ranks make the same calls in the same order. The results
// are on world rank 0.
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

// The figures of one step; valid on world rank 0.
struct StepFigures {
  // The mean over all pipelines, with durations in CPU time (scheduler/bubble.h). An asynchronous
  // schedule doesn't fill and drain in an iteration; its figure covers the last iterations with 4p
  // micro-batches in total.
  double bubble_ratio = 0;
  double bubble_ratio_wall = 0;                     // by the wall clock
  double bubble_predicted = 0;                      // from the schedule and this step's F, B, W
  std::vector<double> rank_bubble_ratio;            // bubble_ratio of each pipeline rank, [p]
  std::map<std::string, std::int64_t> bytes_sent;   // summed over ranks, by group
  std::map<std::string, std::int64_t> peak_memory;  // bytes of the largest rank, by category
  // The parts of the step time, in milliseconds by the wall clock, mean over ranks. "products" and
  // "kernels" (all other kernels) are known where kernels are timed (KernelClock). "waiting" is for
  // other ranks of the pipeline. "rest" is collectives, messages and the host. Their sum is the
  // step.
  std::map<std::string, double> parts_ms;
  // The step time with one core per rank and free transfers: the time of the executed list,
  // replayed by CPU time, plus the longest CPU time of a rank after the list. Empty for
  // asynchronous schedules, whose iterations overlap.
  std::optional<double> replayed_ms;
  Timeline timeline;   // filled for a step begun with `drawn`
  Timeline predicted;  // the first pipeline's, for a step begun with `drawn`
};

// The times that a rank reports for a step.
struct RankTimes {
  StepClock clock;
  double kernel_ms[2] = {};  // products, other kernels
};

// The communication memory that the report of a step takes on each rank, if no rank runs more than
// `actions` actions and the traffic of `groups` groups is counted. Rank 0 also holds the reports of
// all ranks.
std::int64_t report_bytes(std::int64_t actions, std::size_t groups);

class Monitor {
 public:
  // `group` contains all ranks. The monitor uses it alone, so that its traffic is not counted.
  Monitor(const Stepper& stepper, ProcessGroup group);
  // Call it before a step. `drawn`: logs the operations of the rank's groups, for the step's
  // timeline.
  void begin(bool drawn = false);
  void end();  // call it after the step; sends the rank's figures to rank 0, doesn't wait
  // Returns the figures of the earliest step that has ended and was not collected, with its
  // timeline if it was begun with `drawn`. Collective over the monitor's group.
  StepFigures collect();

 private:
  // A step whose figures are in transit.
  struct Ended {
    const IterationLists::Iteration* executed;
    Work work;
    Tensor sent, all;  // `all` on rank 0 only
    bool drawn = false;
    std::vector<LoggedOperation> operations;  // of this rank
  };
  // A step whose figures have arrived, with the traces of all ranks.
  struct Ran {
    const IterationLists::Iteration* executed;
    std::vector<ExecutionTrace> traces;
  };
  // Nanoseconds of products and of other kernels since the last call.
  std::pair<std::int64_t, std::int64_t> take_kernel_times();
  std::vector<std::int64_t> sent() const;  // bytes by traffic group
  // Gathers the operations of all ranks on rank 0, in messages of at most `bytes` bytes per rank.
  std::vector<std::vector<LoggedOperation>> gather(const std::vector<LoggedOperation>& own,
                                                   std::int64_t bytes);
  // The parts of collect() on rank 0.
  void keep_recent(const IterationLists::Iteration* executed, std::vector<ExecutionTrace> traces);
  void measure_bubbles(StepFigures& figures) const;
  void split_step_time(StepFigures& figures, const std::vector<RankTimes>& ranks) const;
  // The lists that `pipeline` (world ranks) ran in recent_, joined to one schedule, and its traces.
  std::pair<Schedule, std::vector<ExecutionTrace>> joined(const std::vector<int>& pipeline) const;

  const Stepper& stepper_;
  ProcessGroup group_;
  std::vector<TrafficGroup> counted_;
  std::shared_ptr<OperationLog> log_ = std::make_shared<OperationLog>();
  bool drawn_ = false;  // for the current step
  std::vector<std::int64_t> before_;
  std::int64_t products_before_ = 0, kernels_before_ = 0;  // readings of KernelClock
  std::deque<Ended> ended_;
  std::deque<Ran> recent_;  // on rank 0 only
};

}  // namespace trident
