// Balances experts by the biases of their routers (Wang 2024, "Auxiliary-loss-free load
// balancing"; DeepSeek-V3): after a step the bias of each expert moves by a fixed rate towards the
// mean number of tokens. The counts are integers over all ranks that share the layer or see other
// samples, so no layout changes a bit of them. The modules count in backward (models/experts.h):
// once a micro-batch, also where a forward is recomputed.
#pragma once

#include <span>
#include <vector>

#include "core/context.h"
#include "parallel/topology.h"
#include "parallel/zero/buckets.h"

namespace trident {

class ExpertBiases {
 public:
  // Allocates the counts of the biases in `buffers` (ParameterBuckets::buffers()). `rate`: of an
  // update.
  ExpertBiases(Context&, std::span<const Bucket> buffers, const Topology&, float rate);
  // Begins the counts of a step, or with updates after each micro-batch those of one.
  void begin();
  // Adds the counts of all ranks. Collective over the ranks of the pipeline stage.
  void reduce(Context&);
  // Changes the biases by the reduced counts, which it keeps: an update that was rolled back can be
  // repeated.
  void update(Context&) const;

 private:
  struct Layer {
    Tensor bias, counts;
  };
  std::vector<std::shared_ptr<Parameter>> parameters_;
  std::vector<Layer> layers_;
  std::vector<Tensor> counts_;        // of each bucket
  std::vector<ProcessGroup> groups_;  // over which counts are added
  float rate_;
};

}  // namespace trident
