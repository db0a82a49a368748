// Runs a rank's model forward only. It computes the mean loss of a validation set, and the logits
// from which text is generated. It changes no weight, and training may have micro-batches in flight
// meanwhile. The rank's thread calls it.
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

// The tokens that count in micro-batches of all ranks, of which there are `all`.
double counted_tokens(const std::vector<HostMicroBatch>&, double all);

class Evaluator {
 public:
  // Runs the forward actions of the model's schedule. The model must outlive the evaluator.
  Evaluator(RankModel&, const Schedule&);
  // As above, with lists that several ranks share.
  Evaluator(RankModel&, std::shared_ptr<const RunLists>);

  // The mean loss over the tokens that count in these micro-batches of all ranks; NaN if none does.
  // Returns nullopt if any rank's `stop` (may be null) is set; all ranks return the same. Throws
  // Error while the last update may be rolled back (Stepper::wait_for_result()). Collective over
  // the world.
  std::optional<double> mean_loss(const std::vector<HostMicroBatch>&,
                                  const std::atomic<bool>* stop = nullptr);

  // The loss of each token of these micro-batches of all ranks, ordered by place in the batch
  // group, micro-batch and token. Throws Error as mean_loss() does. Collective over the world.
  std::vector<float> token_losses(const std::vector<HostMicroBatch>&);

  // For one sequence of n tokens, the logits (n - first, V) of the successor of each token from
  // `first` on. Throws Error if this rank doesn't hold the complete model, or `first` is out of
  // range.
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t first);
  // The logits of the successor of the last token.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens) {
    return logits(tokens, static_cast<std::int64_t>(tokens.size()) - 1);
  }
  // As above for `tokens` that follow `begin` others, whose keys and values are in the cache. Adds
  // the keys and values of `tokens` to the cache and drops any later positions in it.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens, KeyValueCache& cache,
                                 std::int64_t begin);

 private:
  void need_finished_step(const char* what) const;
  // (rows, V) fp32, of the last rows of this sequence.
  std::vector<float> last_logits(std::span<const std::int32_t> tokens, std::int64_t rows,
                                 KeyValueCache* cache, std::int64_t begin);
  // The sum of losses of each micro-batch, as ModelStageRunner::finish().
  Tensor run(const std::vector<HostMicroBatch>&);

  RankModel& model_;
  std::shared_ptr<const RunLists> lists_;
  std::vector<LoweredAction> list_;  // this rank's list, window by window
  std::unique_ptr<ModelStageRunner> runner_;
};

}  // namespace trident
