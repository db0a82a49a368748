// What a rank sends in a training step, in closed form: the direct collectives of
// parallel/collectives/direct.h over the records of rank_share.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/config.h"
#include "models/architecture.h"
#include "scheduler/action.h"
#include "training/optimizer.h"
#include "training/rank_share.h"

namespace trident {

// Of the ranks at one place of the tensor and pipeline groups.
class StepTraffic {
 public:
  // `share` has to outlive it.
  StepTraffic(const Config&, const TransformerShape&, const Schedule&, const RankShare& share,
              const UpdateRule&, int tensor, int pipeline);
  // Bytes by process group of the rank with this place in the data group and in the world.
  std::map<std::string, std::int64_t> of(int data, int rank) const;

 private:
  const RankShare& share_;
  DataSharing sharing_;
  UpdateSums sums_;
  int tensor_, tensor_ranks_, world_;
  std::int64_t updates_, gradient_;            // updates a step, bytes of a gradient element
  std::map<std::string, std::int64_t> alike_;  // of all data ranks
};

}  // namespace trident
