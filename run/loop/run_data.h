// The micro-batches of a run on one rank. A thread reads the training ones ahead of their
// iteration; validation() reads its own at the call. One thread per object calls it; no call is
// collective.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "datasets/batch_sampler.h"
#include "datasets/read_ahead.h"
#include "engine/rank_model.h"
#include "parallel/process_group.h"
#include "parallel/topology.h"
#include "run/loop/training_inputs.h"

namespace trident {

class RunData {
 public:
  // The inputs must outlive it.
  RunData(const TrainingInputs&, const ProcessGroup& world, const Topology&, const RankModel&);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // The number of this rank's micro-batches in iteration k, from 0.
  std::int64_t micro_batches(std::int64_t k) const { return train_.micro_batches(k); }
  // Returns the micro-batches of iteration k, and `more` of later iterations, which an asynchronous
  // schedule begins in it. A thread then reads the micro-batches of the next iteration and
  // `more_next` later ones. Throws Error if a file can't be read or a token is not in the
  // vocabulary.
  std::vector<HostMicroBatch> training(std::int64_t k, std::int64_t more, std::int64_t more_next);

  std::size_t validation_sets() const { return validation_.size(); }
  const std::string& validation_name(std::size_t set) const { return validation_[set].first; }
  // Returns batch `batch`, from 0, of a validation set. Throws as training().
  std::vector<HostMicroBatch> validation(std::size_t set, std::int64_t batch);

 private:
  // Runs on the thread of ahead_.
  std::vector<HostMicroBatch> read_training(std::int64_t k, std::int64_t count);

  const TrainingInputs& inputs_;
  ProcessGroup world_;
  BatchSampler train_;
  ReadAhead ahead_;  // reads from train_
  std::vector<std::pair<std::string, BatchSampler>> validation_;
};

}  // namespace trident
