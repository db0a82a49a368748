// The step check: the figures that all ranks need before an update is final. They are loss,
// gradient norm, whether both are finite, and whether a rank was asked to stop. With them go the
// statistics that modules report (models/statistics.h). It is one all-reduce of integers, so every
// figure is bitwise identical on all ranks, and in all layouts whose ranks add the same values. The
// rank's thread calls it; every method except the accessors is collective.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/exact_sum.h"
#include "models/statistics.h"
#include "parallel/process_group.h"

namespace trident {

// The requests of one rank to all ranks.
struct RankRequests {
  bool stop = false;  // end the run
  bool save = false;  // write a checkpoint
};

// The tokens of a global batch.
struct BatchTokens {
  double all = 1;
  double counted = all;  // in the loss
};

// The result of a step, equal on all ranks. The figures are over the whole world.
struct StepResult {
  BatchTokens tokens;
  double loss = 0;               // mean over the tokens of the global batch that count
  double grad_norm = 0;          // before clipping
  bool applied = true;           // false: loss or gradient not finite, weights unchanged
  bool stop = false;             // a rank asked to end the run
  bool save = false;             // a rank asked for a checkpoint
  double loss_scale = 1;         // of the checked gradients; grad_norm is without it
  bool only_overflowed = false;  // not applied, but only because of the loss scale, which can still
                                 // fall
  bool empty = false;            // not applied, as no token of the batch counts; loss is NaN
  bool rolled_back = false;      // the weights had been updated optimistically
  StepStatistics statistics;     // of the model's modules
};

class StepCheck {
 public:
  // `world`: all ranks, in a group used only for checks, as a check may overlap other
  // communication. `losses`: the number of ranks over which the loss is summed. `statistics` must
  // outlive it.
  StepCheck(ProcessGroup world, int losses, const StatisticTable& statistics);

  // The number of 64-bit integers that one check reduces.
  std::int64_t elements() const { return ExactSum::limbs + 2 + losses_ + table_.elements(); }

  // Starts a check. `gradient_squares` is this rank's part (engine/gradient_norm.h), and so is
  // `statistics` (ModelStageRunner::statistics). `loss_sum` is the sum of its losses if this rank
  // is the primary replica for its `place` among the losses, else null. The loss is divided by the
  // tokens that count, auxiliary losses by all. Async::yes returns at once.
  void begin(Context&, const Tensor& gradient_squares, const Tensor& statistics,
             const double* loss_sum, int place, RankRequests wishes, BatchTokens tokens,
             Async async);
  bool open() const { return open_; }
  const ProcessGroup& group() const { return world_; }
  // Waits for all ranks. Call it once after each begin().
  StepResult end(Context&);

  // The bytes that this rank sent for the checks that have ended.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  ProcessGroup world_;
  int losses_;
  const StatisticTable& table_;
  bool open_ = false;
  BatchTokens tokens_;
  Tensor shared_;
  Work work_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace trident
