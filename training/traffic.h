// What a rank sends in a training step, in closed form: the direct collectives of
// parallel/collectives/direct.h over the records of rank_share.h.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "config/config.h"
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
  // Bytes in which ranks differ.
  struct Own {
    std::int64_t tensor = 0, data = 0, replicas = 0, world = 0;
    auto operator<=>(const Own&) const = default;
  };
  // Of the rank with these places in the shard group, among the replicas and in the world.
  Own own(int shard, int replica, int rank) const;
  // All by process group.
  std::map<std::string, std::int64_t> of(const Own&) const;

 private:
  const RankShare& share_;
  DataSharing sharing_;
  UpdateSums sums_;
  int tensor_, tensor_ranks_, world_;
  bool partial_;                               // some gradients are partial over the tensor group
  std::int64_t updates_, gradient_;            // updates a step, bytes of a gradient element
  int losses_;                                 // ranks over which the loss is summed
  std::map<std::string, std::int64_t> alike_;  // of all ranks of the share
};

}  // namespace trident
