// Runs a rank's model forward alone: the mean loss of a validation set, and the logits from which
// text is generated. No weight changes, and training may have micro-batches in flight meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/lower.h"
#include "scheduler/run_lists.h"
#include "training/data/batch_sampler.h"
#include "training/engine/rank_model.h"
#include "training/engine/stage_runner.h"

namespace trident {

class Evaluator {
 public:
  // Runs the forward actions of the model's schedule. The model outlives it.
  Evaluator(RankModel&, const Schedule&);
  // With lists that several ranks share.
  Evaluator(RankModel&, std::shared_ptr<const RunLists>);

  // Mean loss over the tokens of these micro-batches of all ranks. Nothing where a rank's `stop`
  // (may be null) is set: all ranks see that together. Error while the last update may be rolled
  // back (Stepper::settle()). Collective over the world.
  std::optional<double> mean_loss(const std::vector<HostMicroBatch>&,
                                  const std::atomic<bool>* stop = nullptr);

  // The logits (V) of what follows one sequence of at least one token. Error where this rank
  // doesn't hold the whole model.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);

 private:
  void need_settled(const char* what) const;

  RankModel& model_;
  std::shared_ptr<const RunLists> lists_;
  std::vector<LoweredAction> list_;  // this rank's, window by window
  std::unique_ptr<ModelStageRunner> runner_;
};

}  // namespace trident
