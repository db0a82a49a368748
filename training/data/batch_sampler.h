// The micro-batches of one rank. Iteration k (from 0) uses samples k·G … k·G + G − 1, G the global
// batch size, moved on by `moved` where a run goes on with another G; place d of D in the batch
// group takes the d-th of D equal consecutive parts and cuts it in order into micro-batches of b.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "training/data/dataset.h"

namespace trident {

struct BatchShape {
  std::int64_t global_batch_size = 1;  // G, a multiple of D·b
  std::int64_t micro_batch_size = 1;   // b
  int place = 0;                       // d
  int places = 1;                      // D
  std::int64_t moved = 0;              // samples
  bool tokens = true;  // else only the numbers of samples are given, nothing is read
};

// One micro-batch in host memory; s is the sequence length.
struct HostMicroBatch {
  std::vector<std::int32_t> tokens;      // (b, s)
  std::vector<std::int32_t> labels;      // (b, s): the token after each
  std::vector<std::int64_t> sample_ids;  // (b): k·G + the place in the global batch
};

class BatchSampler {
 public:
  BatchSampler(std::shared_ptr<const Dataset> dataset, const BatchShape& shape);

  std::int64_t micro_batches() const;  // G / (D·b)
  // Fills micro-batch j of iteration k; `out`'s buffers are reused. Any k may be asked for, so a
  // run resumes anywhere; going forward is cheap, and so is going back to what was asked for
  // lately. Not for several threads at once: each rank has its own sampler over the shared dataset.
  void fill(std::int64_t iteration, std::int64_t micro_batch, HostMicroBatch& out);

 private:
  std::shared_ptr<const Dataset> dataset_;
  BatchShape shape_;
  Interleave interleave_;
  std::vector<std::int32_t> sample_;  // s + 1 tokens
};

}  // namespace trident
