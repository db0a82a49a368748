// What a rank holds of a model, made for the plan by the same functions as a run's (RankModel,
// Stepper).
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

}  // namespace trident
