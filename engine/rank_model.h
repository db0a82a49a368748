// One rank's part of a model: its chunks, their weights in buckets, and the gathering of weights. A
// Stepper (stepper.h) trains it, an Evaluator (evaluator.h) runs it forward only. The rank's thread
// calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/context.h"
#include "datasets/batch_sampler.h"
#include "engine/stage_runner.h"
#include "models/architecture.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"
#include "parallel/zero/weight_gathering.h"
#include "parallel/zero/weight_stash.h"
#include "scheduler/action.h"
#include "settings/config.h"

namespace trident {

class RankModel {
 public:
  // `config` is loaded (all sizes known); `schedule` is its schedule_of() and gives the placement
  // of stages. Allocates weights, set to zero. Context and architecture must outlive it. Collective
  // over the topology's world.
  RankModel(Context&, const Config&, const Architecture&, const Schedule&, const Topology&);
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // Sets the initial weights by (seed, name, global index).
  void initialise();

  const Config& config() const { return config_; }
  const Architecture& architecture() const { return architecture_; }
  const TransformerShape& shape() const { return shape_; }
  const Topology& topology() const { return topology_; }
  Context& context() const { return context_; }
  ParameterBuckets& buckets() { return *buckets_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  // Whether a chunk here embeds tokens or computes losses; other ranks need only the number of
  // tokens.
  bool reads_tokens() const;
  // The stages of the complete model.
  int total_stages() const { return total_stages_; }
  // The pipeline rank that computes the losses.
  int last_stage_rank() const { return last_stage_rank_; }
  double batch_tokens() const;  // of the global batch
  // The statistics of all layers and the head.
  const StatisticTable& statistics() const { return statistics_; }

  // The gathering of weights for passes over micro-batches.
  WeightGathering& gathering() { return *gathering_; }
  // Makes a runner of this rank's chunks. It uses two channels; passes that overlap need different
  // channels.
  std::unique_ptr<ModelStageRunner> make_runner(int first_channel);
  // Copies the parts of the micro-batches that this rank's chunks read to the device. They use the
  // live version of the weights.
  std::vector<MicroBatch> upload(const std::vector<HostMicroBatch>&, bool training) const;

  // Starts keeping older versions of the weights. `batch` is as in WeightStash.
  WeightStash& keep_versions(std::int64_t batch);
  WeightStash* stash() const { return stash_.get(); }  // null: no versions are kept
  // True while the last update may still be rolled back. Until then only the Stepper may read the
  // weights.
  bool provisional() const { return provisional_; }
  void set_provisional(bool provisional) { provisional_ = provisional; }

 private:
  Context& context_;
  Config config_;
  const Architecture& architecture_;
  Topology topology_;
  TransformerShape shape_;
  StatisticTable statistics_;
  std::vector<std::vector<int>> placement_;  // stages by pipeline rank
  int total_stages_, last_stage_rank_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<ParameterBuckets> buckets_;
  std::unique_ptr<WeightGathering> gathering_;
  std::unique_ptr<WeightStash> stash_;
  bool provisional_ = false;
};

}  // namespace trident
