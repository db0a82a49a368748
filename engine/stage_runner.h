// Runs schedule actions on a rank's real modules: the scheduler's view of the model.
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
    std::int64_t rows = 0, hidden = 0;  // of the activations between stages on this rank
    DType dtype = DType::f32;
    std::int64_t recompute_layers = 0;  // as ChunkRunner's
  };
  // `pipeline` has the pipeline ranks; placement[r] the stages of rank r, as in Schedule. Chunks in
  // `chunks` are this rank's, in the order of placement.
  // Runners of one pipeline whose passes may overlap have channels of their own (first_channel).
  ModelStageRunner(Context&, const std::vector<Chunk>& chunks, ProcessGroup pipeline,
                   const std::vector<std::vector<int>>& placement, WeightGathering&, Shape shape,
                   int first_channel = 0);

  // Asynchronous schedules: backward uses the weights of its forward, and where `each_microbatch`
  // the gradients of each micro-batch are complete by themselves and `update` follows them.
  void use_stash(WeightStash* stash, bool each_microbatch, std::function<void()> update);
  // So many micro-batches have gone before: those of the first pass are counted from there.
  void go_on(std::int64_t microbatches) { done_ = microbatches; }

  // Starts a pass over the first `microbatches` (all) of these; what follows belongs to later
  // passes, and may be begun. `reduction` is told when a gradient has all of them, or each of them
  // where `each_round` is set; nullptr for a pass without backward.
  void begin(const std::vector<MicroBatch>& batches, GradientReduction* reduction,
             std::size_t microbatches = SIZE_MAX, bool each_round = false);
  // The losses' factor for the gradients of this pass, where it was not known at begin().
  void scale_losses(float scale);
  // Ends it: gives the sum of losses of each micro-batch (fp64 [m]) where this rank has the last
  // stage, else an undefined tensor. Waits (in the stream) for the sends, unless the next pass goes
  // on with what is in flight.
  Tensor finish(bool goes_on = false);
  // Whether passes keep the loss of each token; then those of the last one (m, T) fp32, where this
  // rank has the last stage.
  void keep_token_losses(bool keep) { keeps_token_losses_ = keep; }
  const Tensor& token_losses() const { return token_losses_; }
  // Waits for the sends.
  void deliver();
  // For a plan, whose sends are done at once: of each pass keeps what is sent as long as peers
  // would leave it (scheduler/sent_messages.h).
  void keep_sent(std::vector<std::size_t> until) { kept_until_ = std::move(until); }
  // Outside a pass, where these chunks are the whole model: its logits (T, V') for one micro-batch
  // without labels.
  Tensor logits(const MicroBatch&);

  // Forgets what has run since begin(), which was a warm-up (scheduler/warm_up.h), of which links
  // still owe these messages: for it to run again, or not at all.
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
  // After a backward with weight gradients.
  void microbatch_done(int microbatch);
  void forget();
  NamedRange named(const char* action, int chunk, int microbatch) const;
  Tensor message();  // room for one
  void post_receive(std::map<Key, Tensor>& into, int stage, int microbatch, int peer, int channel);
  void wait_receive(int stage, int microbatch, int channel);
  void send(std::map<Key, Tensor>& from, int stage, int microbatch, int peer, int channel);
  // The gradient of what entered `chunk` goes to the stage before it, here or to be sent.
  void hand_over_gradient(const Chunk& chunk, int microbatch, const Tensor& g);
  ChunkRunner& runner_of(int chunk) { return runners_[static_cast<std::size_t>(chunk)]; }

  Context& context_;
  const std::vector<Chunk>& chunks_;
  ProcessGroup pipeline_;
  std::vector<int> rank_of_stage_;
  int stages_ = 0;
  Shape shape_;

  int first_channel_;
  WeightStash* stash_ = nullptr;
  bool each_microbatch_ = false;
  std::function<void()> update_;

  std::int64_t done_ = 0;  // micro-batches of the passes before that went on
  std::size_t microbatches_ = 0;
  std::vector<MicroBatch> batches_;
  std::map<std::int64_t, WeightVersion> versions_;  // of micro-batches in flight
  bool backward_follows_ = false;
  std::vector<ChunkRunner> runners_;                  // by chunk
  ChunkRunner::Buckets next_weights_;                 // that the compute after this one wants first
  std::map<Key, ChunkActivations> saved_;             // by stage and micro-batch
  std::map<Key, Tensor> inputs_, outputs_;            // activations entering and leaving a stage
  std::map<Key, Tensor> output_grads_, input_grads_;  // gradients of what leaves and enters a stage
  std::map<std::pair<Key, int>, Work> receives_;      // by stage, micro-batch and channel
  struct Sent {
    Work work;
    Tensor message;
    std::size_t until = 0;  // the send that finds it taken, by a plan; 0: any
  };
  std::vector<Sent> sends_;
  std::size_t sent_ = 0;                 // of this pass
  std::vector<std::size_t> kept_until_;  // keep_sent()
  Tensor losses_, token_losses_;
  bool keeps_token_losses_ = false;
};

// The losses' sum, added on the host in micro-batch order; waits for the stream.
double sum_on_host(Context&, const Tensor& losses);

}  // namespace trident
