// What ranks at one place of their pipelines have in common, and in what their places in other
// groups make them differ: so that a plan of a million ranks is that of a few kinds.
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
  // `planned`: of the pipeline's place. It, the mesh and the rule outlive the column.
  StagePlan(const Config&, const Schedule&, const Mesh&, const PlannedRank& planned,
            const UpdateRule&);

  struct Own {
    std::int64_t optimizer_bytes = 0;
    std::vector<std::int64_t> sent;  // by group; see bytes_sent()
    auto operator<=>(const Own&) const = default;
  };
  Own own(int rank);
  // Returns the memory of such a rank, with its own optimizer state; `collects`: it collects the
  // monitor's reports.
  PlannedMemory memory(const Own&, bool collects) const;
  // Bytes that a rank sends in a step, by the names of traffic.
  std::map<std::string, std::int64_t> bytes_sent(const Own&) const;

 private:
  // A group of the trace.
  struct Carried {
    std::string group, traffic;              // its name there, and that of its traffic
    std::optional<Group> axes;               // nothing: all ranks, or the holders of tied weights
    std::map<int, std::int64_t> known = {};  // bytes, by place
  };
  // Gradients of which the ranks of a group have parts.
  struct Partial {
    std::vector<std::int64_t> counts;        // elements, of each sum
    std::map<int, std::int64_t> known = {};  // bytes, by place in the group
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
  std::shared_ptr<const std::vector<Collective>> more_;  // the program's own
  std::vector<Carried> carried_;
  std::vector<Shared> shared_;
};

}  // namespace trident
