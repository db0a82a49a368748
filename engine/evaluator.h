// Runs a rank's model forward alone: the mean loss of a validation set, and the logits from which
// text is generated. No weight changes, and training may have micro-batches in flight meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "datasets/batch_sampler.h"
#include "engine/rank_model.h"
#include "engine/stage_runner.h"
#include "scheduler/lower.h"
#include "scheduler/run_lists.h"

namespace trident {

class Evaluator {
 public:
  // Runs the forward actions of the model's schedule. The model outlives it.
  Evaluator(RankModel&, const Schedule&);
  // With lists that several ranks share.
  Evaluator(RankModel&, std::shared_ptr<const RunLists>);

  // Mean loss over the tokens of these micro-batches of all ranks. Nothing where a rank's `stop`
  // (may be null) is set: all ranks see that together. Error while the last update may be rolled
  // back (Stepper::wait_for_result()). Collective over the world.
  std::optional<double> mean_loss(const std::vector<HostMicroBatch>&,
                                  const std::atomic<bool>* stop = nullptr);

  // The loss of each token of these micro-batches of all ranks: by place in the batch group,
  // micro-batch and token. Error as mean_loss(). Collective over the world.
  std::vector<float> token_losses(const std::vector<HostMicroBatch>&);

  // The logits (n - first, V) of what follows each token of one sequence of n from `first` on.
  // Error where this rank doesn't hold the whole model, or there is no such token.
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t first);
  // Of what follows the last.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens) {
    return logits(tokens, static_cast<std::int64_t>(tokens.size()) - 1);
  }
  // The same where `tokens` follow `begin` others, whose keys and values the cache has, as it has
  // those of these afterwards. What it has of later ones is forgotten.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens, KeyValueCache& cache,
                                 std::int64_t begin);

 private:
  void need_finished_step(const char* what) const;
  // (rows, V) fp32, of the last rows of this sequence.
  std::vector<float> last_logits(std::span<const std::int32_t> tokens, std::int64_t rows,
                                 KeyValueCache* cache, std::int64_t begin);
  // The sums of losses of each micro-batch, as ModelStageRunner::finish().
  Tensor run(const std::vector<HostMicroBatch>&);

  RankModel& model_;
  std::shared_ptr<const RunLists> lists_;
  std::vector<LoweredAction> list_;  // this rank's, window by window
  std::unique_ptr<ModelStageRunner> runner_;
};

}  // namespace trident
