// Runs the modules of one chunk, forward and backward. It either saves activations for backward or
// saves inputs from which backward recomputes them (activation recomputation, Chen 2016). It
// gathers weights module by module where ZeRO stage 3 shards them. It notifies the gradient
// reduction when gradients are complete. The rank's thread calls it. Under ZeRO stage 3 the ranks
// that share a bucket make the same calls in the same order, as the gathers are collective.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core/context.h"
#include "models/architecture.h"
#include "parallel/zero/gradient_reduction.h"
#include "parallel/zero/weight_gathering.h"
#include "scheduler/action.h"

namespace trident {

// The activations that a chunk saves for one micro-batch from forward to backward_weight.
struct ChunkActivations {
  std::vector<SavedActivationsPtr> modules;
  std::vector<Tensor> inputs;  // of each recomputed unit
};

// Consecutive modules of a chunk that backward treats as one.
struct ModuleUnit {
  std::size_t begin = 0, end = 0;
  bool recomputed = false;
};
// Splits a chunk into units. Each `recompute_layers` consecutive layers form one recomputed unit;
// 0: no unit is recomputed.
std::vector<ModuleUnit> module_units(const Chunk&, bool last_stage, std::int64_t recompute_layers);

// The parameters that the actions of a chunk read, module by module, in the order of use. Backward
// uses the modules of a recomputed unit twice.
struct ChunkUses {
  using Parameters = std::vector<std::shared_ptr<Parameter>>;
  std::vector<Parameters> forward, backward;
  const std::vector<Parameters>& of(Kind kind) const;  // empty for backward_weight
};
ChunkUses chunk_uses(const Chunk&, const std::vector<ModuleUnit>&);

class ChunkRunner {
 public:
  using Buckets = std::vector<std::size_t>;

  // `uses` counts the uses of parameters by the preceding chunks, in stage order. The constructor
  // adds this chunk's uses.
  ChunkRunner(Context&, const Chunk&, bool last_stage, std::int64_t recompute_layers,
              WeightGathering&, std::map<const Parameter*, int>& uses);

  // Begins a pass. `gradients` is notified of each gradient after every `microbatches_a_round`
  // micro-batches (nullptr: a pass without backward).
  void begin(GradientReduction* gradients, std::int64_t microbatches_a_round);

  // `next`: the weights that the action after this one needs first (first_buckets()); they are
  // prefetched.
  Tensor forward(const MicroBatch&, Tensor x, ChunkActivations&, const Buckets& next);
  Tensor backward(const MicroBatch&, Tensor g, ChunkActivations&, const Buckets& next);
  Tensor backward_input(const MicroBatch&, Tensor g, ChunkActivations&, const Buckets& next);
  void backward_weight(const MicroBatch&, ChunkActivations&, const Buckets& next);

  // Whether the weights of a module are gathered before each use (ZeRO stage 3).
  bool gathers_weights() const {
    return std::ranges::any_of(forward_buckets_, [](const Buckets& one) { return !one.empty(); });
  }
  // The weights that an action of this kind needs first.
  const Buckets& first_buckets(Kind kind) const;

 private:
  struct Use {
    std::shared_ptr<Parameter> parameter;
    int index = 0;
  };
  class BucketUse;

  Tensor backward(const MicroBatch&, Tensor g, ChunkActivations&, const Buckets& next,
                  bool weights);
  void added(std::vector<std::int64_t>& counters, std::size_t module,
             const std::vector<std::vector<Use>>& uses);

  Context& context_;
  const Chunk& chunk_;
  WeightGathering& weights_;
  std::vector<ModuleUnit> units_;
  std::vector<Buckets> forward_buckets_, backward_buckets_;
  const Buckets no_buckets_;
  std::vector<std::vector<Use>> forward_uses_,
      backward_uses_;  // by module, in the order of completion
  GradientReduction* gradients_ = nullptr;
  std::int64_t round_ = 1;
  std::vector<std::int64_t> forward_added_, backward_added_;  // micro-batches, by module
};

}  // namespace trident
