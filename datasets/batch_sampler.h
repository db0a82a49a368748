// The micro-batches of one rank. Iteration k (from 0) uses the G samples that follow the samples of
// the earlier iterations: k·G … k·G + G − 1 if G is constant. The G samples are split into D equal
// consecutive parts. Place d of D in the batch group takes part d and splits it in order into
// micro-batches of b samples. Each rank has its own sampler; all samplers may share one dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/batch_sizes.h"
#include "datasets/dataset.h"

namespace trident {

struct BatchShape {
  BatchSizes global_batch_size = 1;   // G of each iteration, a multiple of D·b
  std::int64_t micro_batch_size = 1;  // b
  int place = 0;                      // d
  int places = 1;                     // D
  bool tokens = true;                 // false: fill() gives neither tokens nor labels
};

// One micro-batch in host memory; s is the sequence length.
struct HostMicroBatch {
  std::vector<std::int32_t> tokens;  // (b, s)
  // (b, s): the token after each input; -1 where it lies in another document and the dataset masks
  // such labels.
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> sample_ids;  // (b): counted from the run's first sample
  // (b, s): the place in the sample at which each input's document begins; empty where the dataset
  // has no borders.
  std::vector<std::int64_t> document_begins;
  // The labels that aren't -1 in the micro-batches with this number of all places; -1: all.
  std::int64_t counted = -1;
};

class BatchSampler {
 public:
  // RequestError if a global batch size isn't a multiple of D·b.
  BatchSampler(std::shared_ptr<const Dataset> dataset, const BatchShape& shape);

  std::int64_t micro_batches(std::int64_t iteration) const;  // G / (D·b)
  // Fills `out` with micro-batch j of iteration k and reuses its buffers. The caller may ask for
  // any k, so a run can resume at any iteration. A step forward is cheap, and so is a step back to
  // a recent iteration. Not thread-safe. Error if the iteration has no micro-batch j; as
  // TokenSource::read for bad tokens.
  void fill(std::int64_t iteration, std::int64_t micro_batch, HostMicroBatch& out);

 private:
  std::shared_ptr<const Dataset> dataset_;
  BatchShape shape_;
  Interleave interleave_;
  Sample sample_;
};

}  // namespace trident
