// The micro-batches of one rank. Iteration k (from 0) uses the G samples after those of the
// iterations before it (k·G … k·G + G − 1 where all have as many); place d of D in the batch group
// takes the d-th of D equal consecutive parts and cuts it in order into micro-batches of b.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/batch_sizes.h"
#include "datasets/dataset.h"

namespace trident {

struct BatchShape {
  BatchSizes global_batch_size = 1;   // G, of each iteration; multiples of D·b
  std::int64_t micro_batch_size = 1;  // b
  int place = 0;                      // d
  int places = 1;                     // D
  bool tokens = true;                 // else only the numbers of samples are given, nothing is read
};

// One micro-batch in host memory; s is the sequence length.
struct HostMicroBatch {
  std::vector<std::int32_t> tokens;  // (b, s)
  std::vector<std::int32_t> labels;  // (b, s): the token after each
  std::vector<std::int64_t>
      sample_ids;  // (b): the samples before the global batch + the place in it
};

class BatchSampler {
 public:
  BatchSampler(std::shared_ptr<const Dataset> dataset, const BatchShape& shape);

  std::int64_t micro_batches(std::int64_t iteration) const;  // G / (D·b)
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
