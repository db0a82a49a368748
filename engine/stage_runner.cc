#include "engine/stage_runner.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "core/operation_trace.h"
#include "kernels/elementwise.h"

namespace trident {

ModelStageRunner::ModelStageRunner(Context& context, const std::vector<Chunk>& chunks,
                                   ProcessGroup pipeline,
                                   const std::vector<std::vector<int>>& placement,
                                   WeightGathering& weights, const StatisticTable& statistics,
                                   Shape shape, int first_channel)
    : context_(context),
      chunks_(chunks),
      pipeline_(std::move(pipeline)),
      statistic_table_(statistics),
      shape_(shape),
      first_channel_(first_channel) {
  for (const auto& stages : placement) stages_ += static_cast<int>(stages.size());
  rank_of_stage_.resize(static_cast<std::size_t>(stages_));
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    for (const int stage : placement[rank]) {
      rank_of_stage_[static_cast<std::size_t>(stage)] = static_cast<int>(rank);
    }
  }
  std::map<const Parameter*, int> uses;
  for (const Chunk& chunk : chunks_) {
    runners_.emplace_back(context, chunk, is_last(chunk), shape.recompute_layers, weights, uses);
  }
}

void ModelStageRunner::use_stash(WeightStash* stash, bool each_microbatch,
                                 std::function<void()> update) {
  stash_ = stash;
  each_microbatch_ = each_microbatch;
  update_ = std::move(update);
}

void ModelStageRunner::begin(const std::vector<MicroBatch>& batches, GradientReduction* reduction,
                             std::size_t microbatches, bool each_round) {
  batches_ = batches;
  sent_ = 0;
  microbatches_ = std::min(microbatches, batches.size());
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const auto begun = versions_.find(done_ + static_cast<std::int64_t>(i));
    if (begun != versions_.end()) batches_[i].version = begun->second;
  }
  backward_follows_ = reduction != nullptr;
  const std::size_t round = each_microbatch_ || each_round ? 1 : microbatches_;
  for (ChunkRunner& runner : runners_) {
    runner.begin(reduction, static_cast<std::int64_t>(round));
  }
  losses_ = token_losses_ = statistics_ = Tensor();
  if (backward_follows_ && statistic_table_.elements() > 0) begin_statistics();
  for (const Chunk& chunk : chunks_) {
    if (is_last(chunk)) {
      const auto count = static_cast<std::int64_t>(microbatches_);
      losses_ = context_.empty({count}, DType::f64, Category::activation);
      if (!keeps_token_losses_) continue;
      const std::int64_t tokens = batches_[0].batch * batches_[0].sequence;
      token_losses_ = context_.empty({count, tokens}, DType::f32, Category::activation);
    }
  }
}

Tensor ModelStageRunner::zero_statistics() {
  Tensor sums = context_.empty({statistic_table_.elements()}, DType::i64, Category::activation);
  fill(context_, sums, 0);
  return sums;
}

void ModelStageRunner::begin_statistics() {
  statistics_ = zero_statistics();
  for (std::size_t i = 0; i < microbatches_; ++i) {
    batches_[i].statistics = {statistic_table_, statistics_};
    const auto begun = later_statistics_.find(done_ + static_cast<std::int64_t>(i));
    if (begun == later_statistics_.end()) continue;
    add(context_, begun->second, statistics_);
    later_statistics_.erase(begun);
  }
}

StatisticSums ModelStageRunner::later_statistics(int microbatch) {
  Tensor& sums = later_statistics_[done_ + microbatch];
  if (!sums) sums = zero_statistics();
  return {statistic_table_, sums};
}

void ModelStageRunner::scale_losses(float scale, float auxiliary) {
  for (MicroBatch& batch : batches_) {
    batch.loss_scale = scale;
    batch.auxiliary_scale = auxiliary;
  }
}

Tensor ModelStageRunner::finish(bool continues) {
  if (context_.trace() != nullptr) context_.trace()->end_action();
  if (continues) {
    done_ += static_cast<std::int64_t>(microbatches_);
    batches_.clear();
    return losses_;
  }
  forget();
  batches_.clear();
  return losses_;
}

void ModelStageRunner::deliver() {
  for (const Sent& one : sends_) one.work.wait(context_);
  sends_.clear();
}

Tensor ModelStageRunner::logits(const MicroBatch& batch) {
  Tensor x;
  for (ChunkRunner& runner : runners_) {
    runner.begin(nullptr, 1);
    ChunkActivations none;
    x = runner.forward(batch, std::move(x), none, {});
  }
  return x;
}

void ModelStageRunner::forget() {
  deliver();
  inputs_.clear();
  outputs_.clear();
  output_grads_.clear();
  input_grads_.clear();
  saved_.clear();
}

void ModelStageRunner::discard(const std::vector<Unmatched>& unmatched) {
  std::vector<Work> arriving;
  for (const Unmatched& link : unmatched) {
    const int channel = first_channel_ + (link.kind == Kind::forward ? activations : gradients);
    for (int i = 0; i < link.to_send; ++i) {
      Tensor nothing = message();
      fill(context_, nothing, 0);
      Work work = pipeline_.send(context_, nothing, link.peer, Async::yes, channel);
      sends_.push_back({std::move(work), std::move(nothing)});
    }
    for (int i = 0; i < link.to_receive; ++i) {
      arriving.push_back(pipeline_.receive(context_, message(), link.peer, Async::yes, channel));
    }
  }
  for (const auto& [key, work] : receives_) work.wait(context_);
  receives_.clear();
  for (const Work& work : arriving) work.wait(context_);
  if (statistics_) fill(context_, statistics_, 0);
  forget();
}

void ModelStageRunner::microbatch_done(int microbatch) {
  if (stash_ != nullptr) {
    stash_->release(done_ + microbatch);
    versions_.erase(done_ + microbatch);
  }
  if (each_microbatch_) update_();
}

void ModelStageRunner::before_compute(const LoweredAction* next) {
  // The traced action also contains the sends after this compute.
  if (context_.trace() != nullptr) context_.trace()->begin_action();
  next_weights_ =
      next != nullptr ? runner_of(next->chunk).first_buckets(next->kind) : ChunkRunner::Buckets();
}

void ModelStageRunner::pair(const std::function<void()>& forward,
                            const std::function<void()>& backward) {
  const bool gathers =
      std::ranges::any_of(runners_, [](const ChunkRunner& one) { return one.gathers_weights(); });
  if (gathers) return StageRunner::pair(forward, backward);
  const NamedRange range(context_.device(), [] { return std::string("forward and backward"); });
  in_pair_ = true;
  context_.take_turns(forward, backward);
  in_pair_ = false;
  // The sends that follow belong to the second action, whichever ended last.
  if (context_.trace() != nullptr) context_.trace()->resume_last_action();
}

Tensor ModelStageRunner::received(std::map<Key, Tensor>& from, int stage, int microbatch) {
  const auto it = from.find(key_of(stage, microbatch));
  if (it == from.end()) {
    throw Error("stage runner: nothing has arrived for stage " + std::to_string(stage) +
                ", micro-batch " + std::to_string(microbatch));
  }
  Tensor tensor = std::move(it->second);
  from.erase(it);
  return tensor;
}

NamedRange ModelStageRunner::named(const char* action, int chunk, int microbatch) const {
  // Ranges of computes that take turns would cross.
  return NamedRange(context_.device(), !in_pair_, [&] {
    return std::string(action) + ", stage " + std::to_string(chunk_at(chunk).stage) +
           ", micro-batch " + std::to_string(microbatch);
  });
}

void ModelStageRunner::forward(int chunk_index, int microbatch) {
  const NamedRange range = named("forward", chunk_index, microbatch);
  const Chunk& chunk = chunk_at(chunk_index);
  if (stash_ != nullptr && backward_follows_) {
    const WeightVersion version = stash_->take(done_ + microbatch);
    versions_[done_ + microbatch] = version;
    batches_[static_cast<std::size_t>(microbatch)].version = version;
  }
  if (statistics_ && static_cast<std::size_t>(microbatch) >= microbatches_) {
    batches_[static_cast<std::size_t>(microbatch)].statistics = later_statistics(microbatch);
  }
  const MicroBatch& batch = batch_at(microbatch);
  const Key key = key_of(chunk.stage, microbatch);
  Tensor x = chunk.stage == 0 ? Tensor() : received(inputs_, chunk.stage, microbatch);
  ChunkActivations saved;
  x = runner_of(chunk_index).forward(batch, std::move(x), saved, next_weights_);
  if (backward_follows_) saved_[key] = std::move(saved);
  if (is_last(chunk)) {
    sum(context_, x, losses_.flat(microbatch, 1));
    if (token_losses_) copy(context_, x, token_losses_.flat(microbatch * x.numel(), x.numel()));
  } else if (peer_of(chunk.stage + 1) == pipeline_.rank()) {
    inputs_[key_of(chunk.stage + 1, microbatch)] = x;
  } else {
    outputs_[key] = x;
  }
}

void ModelStageRunner::hand_over_gradient(const Chunk& chunk, int microbatch, const Tensor& g) {
  if (chunk.stage == 0) return;
  if (peer_of(chunk.stage - 1) == pipeline_.rank()) {
    output_grads_[key_of(chunk.stage - 1, microbatch)] = g;
  } else {
    input_grads_[key_of(chunk.stage, microbatch)] = g;
  }
}

void ModelStageRunner::backward(int chunk_index, int microbatch) {
  const NamedRange range = named("backward", chunk_index, microbatch);
  const Chunk& chunk = chunk_at(chunk_index);
  const MicroBatch& batch = batch_at(microbatch);
  const Key key = key_of(chunk.stage, microbatch);
  Tensor g = is_last(chunk) ? Tensor() : received(output_grads_, chunk.stage, microbatch);
  g = runner_of(chunk_index).backward(batch, std::move(g), saved_.at(key), next_weights_);
  saved_.erase(key);
  hand_over_gradient(chunk, microbatch, g);
  microbatch_done(microbatch);
}

void ModelStageRunner::backward_input(int chunk_index, int microbatch) {
  const NamedRange range = named("backward input", chunk_index, microbatch);
  const Chunk& chunk = chunk_at(chunk_index);
  Tensor g = is_last(chunk) ? Tensor() : received(output_grads_, chunk.stage, microbatch);
  g = runner_of(chunk_index)
          .backward_input(batch_at(microbatch), std::move(g),
                          saved_.at(key_of(chunk.stage, microbatch)), next_weights_);
  hand_over_gradient(chunk, microbatch, g);
}

void ModelStageRunner::backward_weight(int chunk, int microbatch) {
  const NamedRange range = named("backward weight", chunk, microbatch);
  const Key key = key_of(chunk_at(chunk).stage, microbatch);
  runner_of(chunk).backward_weight(batch_at(microbatch), saved_.at(key), next_weights_);
  saved_.erase(key);
}

Tensor ModelStageRunner::message() {
  return context_.empty(shape_.activations.local(), shape_.dtype, Category::activation);
}

void ModelStageRunner::post_receive(std::map<Key, Tensor>& into, int stage, int microbatch,
                                    int peer, int channel) {
  Tensor tensor = message();
  receives_[{key_of(stage, microbatch), channel}] =
      pipeline_.receive(context_, tensor, peer, Async::yes, first_channel_ + channel);
  into[key_of(stage, microbatch)] = tensor;
}

void ModelStageRunner::wait_receive(int stage, int microbatch, int channel) {
  const auto it = receives_.find({key_of(stage, microbatch), channel});
  it->second.wait(context_);
  receives_.erase(it);
}

void ModelStageRunner::send(std::map<Key, Tensor>& from, int stage, int microbatch, int peer,
                            int channel) {
  std::erase_if(sends_, [&](const Sent& one) { return one.until <= sent_ && one.work.done(); });
  Tensor tensor = received(from, stage, microbatch);
  Work work = pipeline_.send(context_, tensor, peer, Async::yes, first_channel_ + channel);
  const std::size_t until = sent_ < kept_until_.size() ? kept_until_[sent_] : 0;
  sends_.push_back({std::move(work), std::move(tensor), until});
  ++sent_;
}

void ModelStageRunner::post_receive_forward(int chunk, int microbatch) {
  const int stage = chunk_at(chunk).stage;
  post_receive(inputs_, stage, microbatch, peer_of(stage - 1), activations);
}
void ModelStageRunner::wait_receive_forward(int chunk, int microbatch) {
  wait_receive(chunk_at(chunk).stage, microbatch, activations);
}
void ModelStageRunner::send_forward(int chunk, int microbatch) {
  const int stage = chunk_at(chunk).stage;
  send(outputs_, stage, microbatch, peer_of(stage + 1), activations);
}
void ModelStageRunner::post_receive_backward(int chunk, int microbatch) {
  const int stage = chunk_at(chunk).stage;
  post_receive(output_grads_, stage, microbatch, peer_of(stage + 1), gradients);
}
void ModelStageRunner::wait_receive_backward(int chunk, int microbatch) {
  wait_receive(chunk_at(chunk).stage, microbatch, gradients);
}
void ModelStageRunner::send_backward(int chunk, int microbatch) {
  const int stage = chunk_at(chunk).stage;
  send(input_grads_, stage, microbatch, peer_of(stage - 1), gradients);
}

void ModelStageRunner::mark(ClockReading& slot) {
  context_.mark(slot);
}

std::int64_t ModelStageRunner::memory() const {
  return context_.ledger().figures().total;
}

double sum_on_host(Context& context, const Tensor& losses) {
  double sum = 0;
  for (const double loss : context.to_host<double>(losses)) sum += loss;
  return sum;
}

}  // namespace trident
