// What all ranks must know of a step before its update stands: loss, gradient norm, whether both
// are finite, and whether a rank has been asked to stop. One all-reduce of integers, so that every
// figure is the same to the bit on all ranks and in all layouts.
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "core/exact_sum.h"
#include "parallel/process_group.h"

namespace trident {

// What a rank wants of all of them.
struct Wishes {
  bool stop = false;  // an end of the run
  bool save = false;  // a checkpoint
};

// What a step found; equal on all ranks. Collective figures are over the whole world.
struct StepResult {
  double loss = 0;           // mean over the tokens of the global batch
  double grad_norm = 0;      // before clipping
  bool applied = true;       // false: loss or gradient not finite, weights unchanged
  bool stop = false;         // a rank asked for an end of the run
  bool save = false;         // a rank asked for a checkpoint
  double loss_scale = 1;     // of the gradients that were checked; grad_norm is without it
  bool rescales = false;     // not applied, but the loss scale can fall: no fault
  bool rolled_back = false;  // the weights had been updated before this was known
};

class StepCheck {
 public:
  // `world`: all ranks, a group that carries nothing else, since its steps may overlap with others.
  // `losses`: ranks over which the loss is summed.
  StepCheck(ProcessGroup world, int losses);

  // 64-bit integers that one check reduces.
  static std::int64_t elements(int losses) { return ExactSum::limbs + 2 + losses; }

  // What this rank knows: the squares of its gradients (engine/gradient_norm.h), and the
  // sum of its losses if it is the one that speaks for its `place` among the losses. `tokens`
  // divides them. Async::yes returns at once.
  void begin(Context&, const Tensor& gradient_squares, const double* loss_sum, int place,
             Wishes wishes, double tokens, Async async);
  bool open() const { return open_; }
  const ProcessGroup& group() const { return world_; }
  // Waits for all ranks. Once after each begin().
  StepResult end(Context&);

  // Bytes that this rank sent for the checks that have ended.
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  ProcessGroup world_;
  int losses_;
  bool open_ = false;
  double tokens_ = 1;
  Tensor shared_;
  Work work_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace trident
