#include "engine/chunk_runner.h"

#include <algorithm>

namespace trident {

std::vector<ModuleUnit> module_units(const Chunk& chunk, bool last_stage,
                                     std::int64_t recompute_layers) {
  const std::size_t layers_begin = chunk.stage == 0 ? 1 : 0;
  const std::size_t layers_end = chunk.modules.size() - (last_stage ? 1 : 0);
  std::vector<ModuleUnit> units;
  for (std::size_t i = 0; i < chunk.modules.size(); i = units.back().end) {
    const bool recomputed = recompute_layers > 0 && i >= layers_begin && i < layers_end;
    const std::size_t size = recomputed ? static_cast<std::size_t>(recompute_layers) : 1;
    units.push_back({i, recomputed ? std::min(i + size, layers_end) : i + 1, recomputed});
  }
  return units;
}

ChunkUses chunk_uses(const Chunk& chunk, const std::vector<ModuleUnit>& units) {
  ChunkUses uses;
  for (const auto& module : chunk.modules) uses.forward.push_back(module->parameters());
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    for (std::size_t i = unit->begin; unit->recomputed && i < unit->end; ++i) {
      uses.backward.push_back(uses.forward[i]);
    }
    for (std::size_t i = unit->end; i-- > unit->begin;) {
      uses.backward.push_back(chunk.modules[i]->backward_parameters());
    }
  }
  return uses;
}

const std::vector<ChunkUses::Parameters>& ChunkUses::of(Kind kind) const {
  static const std::vector<Parameters> none;
  if (kind == Kind::forward) return forward;
  return kind == Kind::backward_weight ? none : backward;
}

// Walks through a list of uses. enter() holds the weights of the current use and prefetches those
// of the next; leave() releases the current weights.
class ChunkRunner::BucketUse {
 public:
  BucketUse(ChunkRunner& runner, const std::vector<Buckets>& list, const Buckets& next)
      : runner_(runner), list_(list), next_(next) {}
  void enter() {
    runner_.weights_.hold(runner_.context_, list_[at_]);
    runner_.weights_.prefetch(runner_.context_, at_ + 1 < list_.size() ? list_[at_ + 1] : next_);
  }
  void leave() { runner_.weights_.release(list_[at_++]); }

 private:
  ChunkRunner& runner_;
  const std::vector<Buckets>& list_;
  const Buckets& next_;
  std::size_t at_ = 0;
};

ChunkRunner::ChunkRunner(Context& context, const Chunk& chunk, bool last_stage,
                         std::int64_t recompute_layers, WeightGathering& weights,
                         std::map<const Parameter*, int>& uses)
    : context_(context),
      chunk_(chunk),
      weights_(weights),
      units_(module_units(chunk, last_stage, recompute_layers)) {
  const ChunkUses in_chunk = chunk_uses(chunk, units_);
  for (const auto& use : in_chunk.forward) forward_buckets_.push_back(weights.buckets_of(use));
  for (const auto& use : in_chunk.backward) backward_buckets_.push_back(weights.buckets_of(use));
  for (const auto& module : chunk.modules) {
    auto& early = forward_uses_.emplace_back();
    auto& late = backward_uses_.emplace_back();
    const auto in_forward = module->forward_gradients();
    for (const auto& parameter : module->parameters()) {
      const int use = uses[parameter.get()]++;
      const bool is_early =
          std::find(in_forward.begin(), in_forward.end(), parameter) != in_forward.end();
      (is_early ? early : late).push_back({parameter, use});
    }
    std::reverse(late.begin(), late.end());  // the order within buckets
  }
}

void ChunkRunner::begin(GradientReduction* gradients, std::int64_t microbatches_a_round) {
  gradients_ = gradients;
  round_ = microbatches_a_round;
  forward_added_.assign(chunk_.modules.size(), 0);
  backward_added_ = forward_added_;
}

const ChunkRunner::Buckets& ChunkRunner::first_buckets(Kind kind) const {
  if (kind == Kind::forward) return forward_buckets_.front();
  return kind == Kind::backward_weight ? no_buckets_ : backward_buckets_.front();
}

void ChunkRunner::added(std::vector<std::int64_t>& counters, std::size_t module,
                        const std::vector<std::vector<Use>>& uses) {
  if (++counters[module] % round_ != 0) return;
  for (const Use& use : uses[module]) gradients_->ready(context_, *use.parameter, use.index);
}

Tensor ChunkRunner::forward(const MicroBatch& batch, Tensor x, ChunkActivations& saved,
                            const Buckets& next) {
  BucketUse use(*this, forward_buckets_, next);
  if (gradients_ != nullptr) saved.modules.resize(chunk_.modules.size());
  for (const ModuleUnit& unit : units_) {
    if (gradients_ != nullptr && unit.recomputed) saved.inputs.push_back(x);
    for (std::size_t i = unit.begin; i < unit.end; ++i) {
      SavedActivationsPtr kept;
      use.enter();
      x = chunk_.modules[i]->forward(context_, batch, x, kept);
      use.leave();
      if (gradients_ == nullptr) continue;
      if (!unit.recomputed) saved.modules[i] = std::move(kept);
      added(forward_added_, i, forward_uses_);
    }
  }
  return x;
}

Tensor ChunkRunner::backward(const MicroBatch& batch, Tensor g, ChunkActivations& saved,
                             const Buckets& next, bool weights) {
  BucketUse use(*this, backward_buckets_, next);
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (unit->recomputed) {
      MicroBatch again = batch;
      again.statistics = {};  // the first forward has reported them
      Tensor x = std::move(saved.inputs.back());
      saved.inputs.pop_back();
      for (std::size_t i = unit->begin; i < unit->end; ++i) {
        use.enter();
        x = chunk_.modules[i]->forward(context_, again, x, saved.modules[i]);
        use.leave();
      }
    }
    for (std::size_t i = unit->end; i-- > unit->begin;) {
      use.enter();
      g = chunk_.modules[i]->backward_input(context_, batch, g, saved.modules[i]);
      use.leave();
      if (!weights) continue;
      chunk_.modules[i]->backward_weight(context_, batch, saved.modules[i]);
      added(backward_added_, i, backward_uses_);
    }
  }
  return g;
}

Tensor ChunkRunner::backward(const MicroBatch& batch, Tensor g, ChunkActivations& saved,
                             const Buckets& next) {
  return backward(batch, std::move(g), saved, next, true);
}

Tensor ChunkRunner::backward_input(const MicroBatch& batch, Tensor g, ChunkActivations& saved,
                                   const Buckets& next) {
  return backward(batch, std::move(g), saved, next, false);
}

void ChunkRunner::backward_weight(const MicroBatch& batch, ChunkActivations& saved,
                                  const Buckets& next) {
  weights_.prefetch(context_, next);
  for (std::size_t i = chunk_.modules.size(); i-- > 0;) {
    chunk_.modules[i]->backward_weight(context_, batch, saved.modules[i]);
    added(backward_added_, i, backward_uses_);
  }
}

}  // namespace trident
