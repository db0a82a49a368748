// Runs schedule actions on a rank's modules; it connects the scheduler to the model. It sends and
// receives between pipeline stages. The rank's thread calls it. All ranks of the pipeline run the
// lists of one schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/context.h"
#include "engine/chunk_runner.h"
#include "models/architecture.h"
#include "parallel/process_group.h"
#include "parallel/zero/gradient_reduction.h"
#include "parallel/zero/weight_gathering.h"
#include "parallel/zero/weight_stash.h"
#include "scheduler/execute.h"
#include "scheduler/warm_up.h"

namespace trident {

class ModelStageRunner final : public StageRunner {
 public:
  struct Shape {
    Placement activations;  // of one micro-batch between stages, (T, H)
    DType dtype = DType::f32;
    std::int64_t recompute_layers = 0;  // as in ChunkRunner
  };
  // `pipeline` has the pipeline ranks. placement[r] has the stages of rank r, as in Schedule.
  // `chunks` are this rank's, in the order of placement. Runners of one pipeline whose passes may
  // overlap need different channels; each uses two, from first_channel on.
  ModelStageRunner(Context&, const std::vector<Chunk>& chunks, ProcessGroup pipeline,
                   const std::vector<std::vector<int>>& placement, WeightGathering&,
                   const StatisticTable&, Shape shape, int first_channel = 0);

  // For asynchronous schedules: a backward uses the weights of its forward. With `each_microbatch`
  // the gradients of each micro-batch are complete on their own, and `update` runs after them.
  void use_stash(WeightStash* stash, bool each_microbatch, std::function<void()> update);
  // Resumes after `microbatches` micro-batches: the micro-batches of the first pass are numbered
  // from there.
  void resume_after(std::int64_t microbatches) { done_ = microbatches; }

  // Starts a pass over the first `microbatches` (default: all) of `batches`. The others belong to
  // later passes, and this pass may begin them. `reduction` is notified when a gradient has all
  // micro-batches, or with `each_round` after each of them; nullptr for a pass without backward.
  void begin(const std::vector<MicroBatch>& batches, GradientReduction* reduction,
             std::size_t microbatches = SIZE_MAX, bool each_round = false);
  // Sets the factors of losses and of auxiliary losses for the gradients of this pass, if they were
  // not known at begin().
  void scale_losses(float scale, float auxiliary);
  // Ends the pass. Returns the sum of losses of each micro-batch (fp64 [m]) on the rank with the
  // last stage, else an undefined tensor. Waits (in the stream) for the sends, unless `continues`:
  // the next pass then continues with the micro-batches in flight.
  Tensor finish(bool continues = false);
  // Whether passes keep the loss of each token. token_losses() has the losses of the last pass (m,
  // T) in fp32, on the rank with the last stage.
  void keep_token_losses(bool keep) { keeps_token_losses_ = keep; }
  const Tensor& token_losses() const { return token_losses_; }
  // The statistics that the modules on this rank reported for the micro-batches of the last pass:
  // (StatisticTable::elements()) i64. Undefined if the model reports none, or if no backward
  // followed.
  const Tensor& statistics() const { return statistics_; }
  // Waits (in the stream) for the sends.
  void deliver();
  // For a plan, whose sends complete at once: keeps each message of a pass until the send with the
  // number in `until`, as in a run where peers take messages later (scheduler/sent_messages.h).
  void keep_sent(std::vector<std::size_t> until) { kept_until_ = std::move(until); }
  // The logits (T, V') of one micro-batch without labels. Call it outside a pass, on a rank whose
  // chunks are the complete model.
  Tensor logits(const MicroBatch&);

  // Discards the actions run since begin(), which must be a warm-up (scheduler/warm_up.h). Sends
  // and receives the messages in `unmatched`, which the links still lack. The warm-up may then run
  // again.
  void discard(const std::vector<Unmatched>& unmatched);

  void forward(int chunk, int microbatch) override;
  void backward(int chunk, int microbatch) override;
  void backward_input(int chunk, int microbatch) override;
  void backward_weight(int chunk, int microbatch) override;
  void post_receive_forward(int chunk, int microbatch) override;
  void wait_receive_forward(int chunk, int microbatch) override;
  void send_forward(int chunk, int microbatch) override;
  void post_receive_backward(int chunk, int microbatch) override;
  void wait_receive_backward(int chunk, int microbatch) override;
  void send_backward(int chunk, int microbatch) override;
  void mark(ClockReading& slot) override;
  std::int64_t memory() const override;
  void before_compute(const LoweredAction* next) override;
  // The computes take turns where layers exchange tokens, unless weights are gathered for each use.
  void pair(const std::function<void()>& forward, const std::function<void()>& backward) override;

 private:
  using Key = std::pair<int, std::int64_t>;  // stage, micro-batch counted over all passes
  enum Channel : int { activations = 0, gradients = 1 };

  const Chunk& chunk_at(int chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
  const MicroBatch& batch_at(int microbatch) const {
    return batches_[static_cast<std::size_t>(microbatch)];
  }
  bool is_last(const Chunk& chunk) const { return chunk.stage + 1 == stages_; }
  int peer_of(int stage) const { return rank_of_stage_[static_cast<std::size_t>(stage)]; }
  Key key_of(int stage, int microbatch) const { return {stage, done_ + microbatch}; }
  Tensor received(std::map<Key, Tensor>& from, int stage, int microbatch);
  // Called after the backward that completes a micro-batch's weight gradients.
  void microbatch_done(int microbatch);
  // Waits (in the stream) for the sends, and frees the activations and gradients of the pass.
  void forget();
  // Makes the sums of this pass, which begin with those of the micro-batches that the pass before
  // has begun.
  void begin_statistics();
  // The sums of a micro-batch that belongs to a later pass.
  StatisticSums later_statistics(int microbatch);
  Tensor zero_statistics();
  NamedRange named(const char* action, int chunk, int microbatch) const;
  Tensor message();  // allocates a message
  void post_receive(std::map<Key, Tensor>& into, int stage, int microbatch, int peer, int channel);
  void wait_receive(int stage, int microbatch, int channel);
  void send(std::map<Key, Tensor>& from, int stage, int microbatch, int peer, int channel);
  // Passes the gradient of the input of `chunk` to the stage before it, on this rank or by a send.
  void hand_over_gradient(const Chunk& chunk, int microbatch, const Tensor& g);
  ChunkRunner& runner_of(int chunk) { return runners_[static_cast<std::size_t>(chunk)]; }

  Context& context_;
  const std::vector<Chunk>& chunks_;
  ProcessGroup pipeline_;
  const StatisticTable& statistic_table_;
  std::vector<int> rank_of_stage_;
  int stages_ = 0;
  Shape shape_;

  int first_channel_;
  bool in_pair_ = false;
  WeightStash* stash_ = nullptr;
  bool each_microbatch_ = false;
  std::function<void()> update_;

  std::int64_t done_ = 0;  // micro-batches of earlier passes that the next ones continue
  std::size_t microbatches_ = 0;
  std::vector<MicroBatch> batches_;
  std::map<std::int64_t, WeightVersion> versions_;  // of micro-batches in flight
  bool backward_follows_ = false;
  std::vector<ChunkRunner> runners_;                  // by chunk
  ChunkRunner::Buckets next_weights_;                 // needed first by the next compute
  std::map<Key, ChunkActivations> saved_;             // by stage and micro-batch
  std::map<Key, Tensor> inputs_, outputs_;            // activations entering and leaving a stage
  std::map<Key, Tensor> output_grads_, input_grads_;  // gradients of a stage's output and input
  std::map<std::pair<Key, int>, Work> receives_;      // by stage, micro-batch and channel
  struct Sent {
    Work work;
    Tensor message;
    std::size_t until = 0;  // number of the send that frees it, in a plan; 0: any
  };
  std::vector<Sent> sends_;
  std::size_t sent_ = 0;                 // sends of this pass
  std::vector<std::size_t> kept_until_;  // keep_sent()
  Tensor losses_, token_losses_;
  bool keeps_token_losses_ = false;
  Tensor statistics_;
  std::map<std::int64_t, Tensor> later_statistics_;  // by micro-batch counted over all passes
};

// The sum of the losses, added on the host in micro-batch order. Waits for the stream.
double sum_on_host(Context&, const Tensor& losses);

}  // namespace trident
