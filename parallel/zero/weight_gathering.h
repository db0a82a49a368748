// Gathers the weights that ZeRO keeps on other data-parallel ranks: the weights that an update has
// changed (stages 1 and 2, and stage 3's small ones, which stay on every rank), or the weights of a
// module for as long as it uses them (stage 3).
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "parallel/zero/buckets.h"

namespace trident {

class WeightGathering {
 public:
  // Gathers at most `prefetch_elements` ahead of their use, asynchronously to the stream where
  // `overlap` is set. Binds parameters while their weights are gathered.
  WeightGathering(ParameterBuckets&, bool overlap, std::int64_t prefetch_elements);

  // The buckets of these parameters that are gathered before each use, ascending; empty except in
  // stage 3.
  std::vector<std::size_t> buckets_of(const std::vector<std::shared_ptr<Parameter>>&) const;

  // One use of a module's weights. hold() gathers the full weights (the stream waits), and
  // release() frees them, unless prefetch() has requested them meanwhile. Every hold() needs a
  // release(). Collective over the ranks that share each bucket, in the same order on every rank.
  void hold(Context&, const std::vector<std::size_t>& buckets);
  void release(const std::vector<std::size_t>& buckets);
  // Requests the buckets of the next use. Weights that are there stay; gathering of the others
  // starts, within the limit.
  void prefetch(Context&, const std::vector<std::size_t>& buckets);
  // Drops weights that were requested and are not held: they are not to be used any more.
  void forget(Context&);

  // After an update: gathers the weights that every rank keeps in full, so that they are complete
  // again: all in stages 1 and 2, in stage 3 those below stage3_param_persistence_threshold.
  void gather_updated(Context&);

 private:
  struct GatheredUse {
    Tensor weights;  // complete, or being gathered
    Work arriving;
    int holders = 0;
    bool wanted = false;  // by the next use
  };
  void start(Context&, std::size_t bucket, Async async);

  ParameterBuckets& buckets_;
  bool overlap_;
  std::int64_t prefetch_elements_;
  std::vector<GatheredUse> uses_;  // by bucket
};

}  // namespace trident
