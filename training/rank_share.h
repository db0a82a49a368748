// What a rank holds of a model, made for the plan by the same functions as a run's (RankModel).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.h"
#include "models/architecture.h"
#include "parallel/data/bucket_layout.h"
#include "scheduler/action.h"

namespace trident {

// Of a place in the tensor and pipeline groups, before data parallelism deals it out.
struct RankShare {
  std::vector<Chunk> chunks;
  std::vector<std::shared_ptr<Parameter>> parameters;
  std::vector<BucketLayout> buckets;
};
RankShare rank_share(const Config&, const Architecture&, const Schedule& schedule, int tensor,
                     int pipeline);

// How the ranks of a shard group share its buckets (parallel/data/).
struct DataSharing {
  explicit DataSharing(const Config& config);

  // Elements that a rank updates.
  std::int64_t updated(const BucketLayout& bucket) const {
    return stage >= 1 ? bucket.shard(ranks) : bucket.elements;
  }
  // Where they begin at a place of the group.
  std::int64_t begin(const BucketLayout& bucket, int place) const {
    return stage >= 1 ? place * bucket.shard(ranks) : 0;
  }
  // ZeRO stage 3 gathers its weights before use.
  bool gathered(const BucketLayout& bucket) const {
    return stage == 3 && !bucket.persistent && ranks > 1;
  }
  // Elements of weights that are kept.
  std::int64_t weights(const BucketLayout& bucket) const {
    return gathered(bucket) ? bucket.shard(ranks) : bucket.elements;
  }
  // Elements that are reduced, by an all-reduce or a reduce-scatter, for one update.
  std::int64_t reduced(const BucketLayout& bucket) const {
    return bucket.elements * (each ? microbatches * bucket.uses() : 1);
  }

  int ranks, replicas, stage;
  bool each;  // gradients are reduced after each micro-batch
  std::int64_t microbatches;
};

}  // namespace trident
