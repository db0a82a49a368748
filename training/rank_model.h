// One rank's share of the model with its buffers, optimizer and schedule: runs training steps and
// evaluation passes. What a trainer, a benchmark and a test drive.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config.h"
#include "core/context.h"
#include "models/architecture.h"
#include "parallel/data/buckets.h"
#include "parallel/topology.h"
#include "parallel/transport/transport.h"
#include "scheduler/action.h"
#include "scheduler/execute.h"
#include "scheduler/iterations.h"
#include "training/data/batch_sampler.h"
#include "training/optimizer.h"
#include "training/stage_runner.h"

namespace trident {

// What a step found; equal on all ranks. Collective figures are over the whole world.
struct StepResult {
  double loss = 0;       // mean over the tokens of the global batch
  double grad_norm = 0;  // before clipping
  bool applied = true;   // false: loss or gradient not finite, weights unchanged
};

// Clocks at the edges of a step's parts on this rank.
struct StepClock {
  ClockReading begin, executed, reduced, checked, updated, end;
};

class RankModel {
 public:
  // For inference there are neither gradients nor optimizer state, and train() is an error.
  enum class Purpose { training, inference };
  // `config` is loaded (all sizes known). Allocates weights, gradients and optimizer state.
  RankModel(Context&, const Config&, const Architecture&, const Topology&,
            Purpose = Purpose::training);

  // Initial values by (seed, name, global index).
  void initialise();

  // One update from this rank's micro-batches of the global batch (the same number on all ranks).
  // Reduces, clips, checks, updates. Where something is not finite the update is left out on every
  // rank. Under an asynchronous schedule ranks run ahead: behind the iteration's own micro-batches
  // come look_ahead() of the iterations after it. PipeDream updates after every micro-batch, so
  // nothing is clipped or left out, and the norm is that of the last micro-batch's gradient.
  StepResult train(const std::vector<HostMicroBatch>&, double learning_rate);
  // Mean loss over the tokens of these micro-batches of all ranks; no weight changes.
  double evaluate(const std::vector<HostMicroBatch>&);
  // Micro-batches of later iterations that the next train() needs.
  int look_ahead() const;
  // Updates that the present weights have had, one each iteration but under PipeDream.
  std::int64_t weight_version() const;

  // After train() with this set, gradients() are whole and not yet used by clipping. Costs a gather
  // under ZeRO.
  void keep_whole_gradients(bool keep) { whole_gradients_ = keep; }

  const Config& config() const { return config_; }
  const Architecture& architecture() const { return architecture_; }
  const TransformerShape& shape() const { return shape_; }
  const Topology& topology() const { return topology_; }
  Context& context() { return context_; }
  ParameterBuckets& buckets() { return *buckets_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  const Schedule& schedule() const { return schedule_; }
  // What all ranks ran in the last train(): the schedule but for asynchronous ones.
  const IterationLists::Iteration& executed() const { return *executed_; }
  const ExecutionTrace& trace() const { return trace_; }  // of the last train()
  const StepClock& clock() const { return clock_; }       // of the last train()

 private:
  std::vector<MicroBatch> upload(const std::vector<HostMicroBatch>&, bool training,
                                 float loss_scale);
  // Sum of the losses of all tokens, in micro-batch order, then in data-rank order; on all ranks.
  double total_loss(const Tensor& losses);
  // Changes the weights by the reduced gradients.
  void update(double gradient_scale);

  Context& context_;
  Config config_;
  const Architecture& architecture_;
  Topology topology_;
  TransformerShape shape_;
  Schedule schedule_;
  IterationLists lists_;
  const IterationLists::Iteration* executed_;
  std::int64_t iteration_ = 0;
  std::vector<LoweredAction> forward_list_;  // this rank's, for evaluation
  std::vector<Chunk> chunks_;
  std::unique_ptr<ParameterBuckets> buckets_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<WeightStash> stash_;  // of asynchronous schedules
  std::unique_ptr<ModelStageRunner> runner_, evaluator_;
  double learning_rate_ = 0;  // of the iteration that runs
  ExecutionTrace trace_;
  StepClock clock_;
  bool whole_gradients_ = false;
};

// The schedule that `config` asks for; RequestError at /pipeline/schedule if it can't be.
Schedule schedule_of(const Config& config);
// The most elements of a bucket: reduce_bucket_size, and under ZeRO allgather_bucket_size too,
// since a bucket's weights are gathered in one go.
std::int64_t bucket_elements(const Config& config);
// The forward actions of `schedule` alone, in its order.
Schedule forward_only(const Schedule& schedule);
RankGrid rank_grid_of(const Config&);
// This rank's groups in the grid of `config`. Every rank of the transport calls it.
Topology topology_of(const Config&, Transport&);
TensorParallel tensor_parallel_of(const Config&, const Topology&);

}  // namespace trident
