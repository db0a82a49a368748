// One rank's share of a model: its chunks, their weights in buckets, where weights come from. A
// Stepper (stepper.h) trains it, an Evaluator (evaluator.h) runs it forward alone.
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
  // `config` is loaded (all sizes known); of its schedule_of() the placement of stages is taken.
  // Allocates weights, zeros. Context and architecture outlive it. Collective over the topology's
  // world.
  RankModel(Context&, const Config&, const Architecture&, const Schedule&, const Topology&);
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  // Initial values by (seed, name, global index).
  void initialise();

  const Config& config() const { return config_; }
  const Architecture& architecture() const { return architecture_; }
  const TransformerShape& shape() const { return shape_; }
  const Topology& topology() const { return topology_; }
  Context& context() const { return context_; }
  ParameterBuckets& buckets() { return *buckets_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  // Whether a chunk here embeds tokens or has their losses: others need only their number.
  bool reads_tokens() const;
  // Of the whole model.
  int total_stages() const { return total_stages_; }
  // The pipeline rank that has the losses.
  int last_stage_rank() const { return last_stage_rank_; }
  double batch_tokens() const;  // of the global batch

  // What a pass over micro-batches needs.
  WeightGathering& gathering() { return *gathering_; }
  // Runs this rank's chunks. Passes that overlap have channels of their own, two each.
  std::unique_ptr<ModelStageRunner> make_runner(int first_channel);
  // On the device what this rank's chunks read of them; with the live version of the weights.
  std::vector<MicroBatch> upload(const std::vector<HostMicroBatch>&, bool training) const;

  // Older versions of the weights, once somebody keeps them (batches as WeightStash counts them).
  WeightStash& keep_versions(std::int64_t batch);
  WeightStash* stash() const { return stash_.get(); }  // null: none are kept
  // The last update may still be rolled back, so weights are nobody's to read but the Stepper's.
  bool provisional() const { return provisional_; }
  void set_provisional(bool provisional) { provisional_ = provisional; }

 private:
  Context& context_;
  Config config_;
  const Architecture& architecture_;
  Topology topology_;
  TransformerShape shape_;
  std::vector<std::vector<int>> placement_;  // stages by pipeline rank
  int total_stages_, last_stage_rank_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<ParameterBuckets> buckets_;
  std::unique_ptr<WeightGathering> gathering_;
  std::unique_ptr<WeightStash> stash_;
  bool provisional_ = false;
};

}  // namespace trident
