// What ranks at one place of the tensor and the pipeline group have in common, and in what their
// places in other groups make them differ: so that a plan of a million ranks is that of a few
// kinds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/mesh.h"
#include "training/optimizer/optimizer.h"
#include "training/plan/planned_rank.h"
#include "training/plan/rank_share.h"

namespace trident {

class PlanColumn {
 public:
  // `rolls_back`: updates may be rolled back. `planned`: of the pipeline's place; `rank`: the first
  // of the column. All outlive it.
  PlanColumn(const Config&, const Schedule&, const Mesh&, const RankShare&, const PlannedRank&,
             const UpdateRule&, bool rolls_back, int rank);

  struct Own {
    std::int64_t optimizer_bytes = 0;
    std::vector<std::int64_t> sent;  // by group; see bytes_sent()
    auto operator<=>(const Own&) const = default;
  };
  Own own(int rank);
  // Bytes that a rank sends in a step, by the names of traffic.
  std::map<std::string, std::int64_t> bytes_sent(const Own&) const;

 private:
  // A group of the trace.
  struct Carried {
    std::string group, traffic;  // its name there, and that of its traffic
    std::optional<Group> axes;   // nothing: all ranks, or the holders of tied weights
    bool world = false;
    int place = 0;                           // where neither axes nor world say
    std::map<int, std::int64_t> known = {};  // bytes, by place
  };
  // Buckets that the same ranks share.
  struct Shared {
    Group group;
    std::vector<const BucketLayout*> buckets;
    struct Part {
      std::int64_t optimizer_elements = 0;
      std::map<Group, std::int64_t> partial;  // bytes sent for partial gradients
    };
    std::map<int, Part> known = {};  // by place
  };
  const Shared::Part& part(Shared& shared, int place);
  std::int64_t sent_for(const PartialSum& sum) const;

  const Mesh& mesh_;
  const PlannedRank& planned_;
  const UpdateRule& rule_;
  int stage_;
  bool mixed_, keeps_;
  DType gradient_;
  std::int64_t updates_;
  int first_;
  std::vector<Carried> carried_;
  std::vector<Shared> shared_;
};

}  // namespace trident
