// The micro-batches of a run on one rank: those of training, which a thread reads ahead, and those
// of validation.
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
  // Inputs outlive it.
  RunData(const TrainingInputs&, const ProcessGroup& world, const Topology&, const RankModel&);
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // Of iteration k, from 0.
  std::int64_t micro_batches(std::int64_t k) const { return train_.micro_batches(k); }
  // The micro-batches of iteration k, and `more` of later ones, which an asynchronous schedule
  // begins in it. Meanwhile a thread reads those of the next iteration with `more_next` later ones.
  // Error where a file can't be read or a token is none of the vocabulary.
  std::vector<HostMicroBatch> training(std::int64_t k, std::int64_t more, std::int64_t more_next);

  std::size_t validation_sets() const { return validation_.size(); }
  const std::string& validation_name(std::size_t set) const { return validation_[set].first; }
  // The `batch`-th batch of a validation set. Error as above.
  std::vector<HostMicroBatch> validation(std::size_t set, std::int64_t batch);

 private:
  // On the thread of ahead_.
  std::vector<HostMicroBatch> read_training(std::int64_t k, std::int64_t count);

  const TrainingInputs& inputs_;
  ProcessGroup world_;
  BatchSampler train_;
  ReadAhead ahead_;  // of train_
  std::vector<std::pair<std::string, BatchSampler>> validation_;
};

}  // namespace trident
