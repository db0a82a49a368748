// Runs the modules of one chunk: with records of what backward needs, or with inputs from which
// backward computes them again (activation recomputation, Chen 2016); with weights gathered module
// by module where ZeRO stage 3 keeps them in shards; and tells who reduces them when gradients are
// complete.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/context.h"
#include "models/architecture.h"
#include "parallel/zero/gradient_reduction.h"
#include "parallel/zero/weight_gathering.h"
#include "scheduler/action.h"

namespace trident {

// What a chunk keeps of one micro-batch from forward to backward_weight.
struct ChunkActivations {
  std::vector<SavedActivationsPtr> modules;
  std::vector<Tensor> inputs;  // of each recomputed unit
};

// Consecutive modules of a chunk that backward treats as one.
struct ModuleUnit {
  std::size_t begin = 0, end = 0;
  bool recomputed = false;
};
// `recompute_layers` consecutive layers are one recomputed unit; 0: none are.
std::vector<ModuleUnit> module_units(const Chunk&, bool last_stage, std::int64_t recompute_layers);

// The parameters that the actions of a chunk read, module by module, in the order of the visits.
// Backward visits the modules of a recomputed unit twice.
struct ChunkUses {
  using Parameters = std::vector<std::shared_ptr<Parameter>>;
  std::vector<Parameters> forward, backward;
  const std::vector<Parameters>& of(Kind kind) const;  // none for backward_weight
};
ChunkUses chunk_uses(const Chunk&, const std::vector<ModuleUnit>&);

class ChunkRunner {
 public:
  using Buckets = std::vector<std::size_t>;

  // `uses` counts the uses of parameters by the chunks before, in stage order, and is
  // brought up to date.
  ChunkRunner(Context&, const Chunk&, bool last_stage, std::int64_t recompute_layers,
              WeightGathering&, std::map<const Parameter*, int>& uses);

  // A new pass. `gradients` is told of each gradient once it has so many micro-batches (nullptr: a
  // pass without backward).
  void begin(GradientReduction* gradients, std::int64_t microbatches_a_round);

  // `next`: the weights that are wanted after this action (first_buckets()).
  Tensor forward(const MicroBatch&, Tensor x, ChunkActivations&, const Buckets& next);
  Tensor backward(const MicroBatch&, Tensor g, ChunkActivations&, const Buckets& next);
  Tensor backward_input(const MicroBatch&, Tensor g, ChunkActivations&, const Buckets& next);
  void backward_weight(const MicroBatch&, ChunkActivations&, const Buckets& next);

  // The weights that an action of this kind wants first.
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
  std::vector<std::vector<Use>> forward_uses_, backward_uses_;  // by module, as they are complete
  GradientReduction* gradients_ = nullptr;
  std::int64_t round_ = 1;
  std::vector<std::int64_t> forward_added_, backward_added_;  // micro-batches, by module
};

}  // namespace trident
