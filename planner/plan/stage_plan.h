// The plan of all ranks of one stage: the values that they share, and the values that depend on a
// rank's place in its other groups. Thanks to this split, the plan of a million ranks has few
// distinct entries. A StagePlan caches results, so one thread may use it at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/optimizer/optimizer.h"
#include "parallel/mesh.h"
#include "planner/plan/planned_rank.h"
#include "settings/config.h"

namespace trident {

class StagePlan {
 public:
  // `planned` is the plan of this place of the pipeline. It, the mesh and the rule must outlive
  // this object.
  StagePlan(const Config&, const Schedule&, const Mesh&, const PlannedRank& planned,
            const UpdateRule&);

  // The values of a rank that depend on its places in its groups.
  struct Own {
    std::int64_t optimizer_bytes = 0;
    std::vector<std::int64_t> sent;  // by group; see bytes_sent()
    auto operator<=>(const Own&) const = default;
  };
  Own own(int rank);
  // Returns the memory of a rank with these own values. `collects`: the rank collects the monitor's
  // reports.
  PlannedMemory memory(const Own&, bool collects) const;
  // Returns the bytes that a rank sends in a step, by the names of traffic.
  std::map<std::string, std::int64_t> bytes_sent(const Own&) const;

 private:
  // A group of the trace.
  struct Carried {
    std::string group, traffic;              // name in the trace, and name of its traffic
    std::optional<Group> axes;               // empty: all ranks, or the holders of tied weights
    std::map<int, std::int64_t> known = {};  // bytes, by place
  };
  // Gradients that are split over the ranks of a group.
  struct Partial {
    std::vector<std::pair<std::int64_t, DType>> counts;  // elements of each sum, and their type
    std::map<int, std::int64_t> known = {};              // bytes, by place in the group
  };
  // Buckets that the same ranks share.
  struct Shared {
    Group group;
    std::vector<const BucketLayout*> buckets;
    struct Part {
      std::int64_t optimizer_bytes = 0;
      std::map<Group, Partial> partial;
    };
    std::map<int, Part> known = {};  // by place
  };
  Shared::Part& part(Shared& shared, int place);
  std::int64_t sent_for(Group group, Partial& partial, int place) const;
  std::int64_t sent(Carried& carried, int rank) const;

  const Mesh& mesh_;
  const PlannedRank& planned_;
  const UpdateRule& rule_;
  StageEnds ends_;
  int stage_;
  bool mixed_;
  DType gradient_;
  std::int64_t updates_;
  // Collectives of the program that links the library.
  std::shared_ptr<const std::vector<Collective>> more_;
  std::vector<Carried> carried_;
  std::vector<Shared> shared_;
};

}  // namespace trident
