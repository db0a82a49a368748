// Predicts the memory and the traffic of a run before anything is allocated, from training steps
// that run on a planning device (planner/plan/planned_rank.h). One process plans all ranks; no call
// is collective.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "parallel/parameter.h"
#include "scheduler/action.h"
#include "settings/config.h"

namespace trident {

// Ranks that differ only in their coordinates are folded into one entry: `rank` and its coordinates
// are those of the first of `count` ranks.
struct PlanRank {
  std::int64_t rank = 0;
  std::vector<int> at;        // coordinates by axis (Plan::axes)
  std::int64_t pipeline = 0;  // place in the pipeline group
  std::int64_t count = 1;
  std::int64_t layers = 0;
  std::int64_t parameters = 0;                     // elements held, vocabulary padding included
  std::map<std::string, std::int64_t> bytes;       // peak of each ledger category
  std::int64_t peak_bytes = 0;                     // peak of the categories' sum
  std::map<std::string, std::int64_t> bytes_sent;  // in a training step, by process group
};

struct Plan {
  std::int64_t world_size = 0;
  std::vector<std::string> axes;  // names
  std::int64_t parameters = 0;    // of the model: each counted once, without padding
  // The same by role. Laws of scaling count without the embedding and the head.
  std::map<ParameterRole, std::int64_t> parameters_by_role;
  double flops_per_step = 0;  // forward and backward of the global batch (Megatron-LM's count)
  double bubble_ratio = 0;    // of the schedule, with equal stages and free transfers
  // The bubble with each stage's FLOPs under the layer split. `imbalance` is the busiest pipeline
  // rank's excess over the mean (0.25: a quarter more).
  std::vector<std::int64_t> layer_split;
  double imbalance = 0, bubble_ratio_of_split = 0;
  std::vector<PlanRank> ranks;  // in order of rank
};

// Both throw RequestError where the schedule can't be made.
Plan make_plan(const Config&, const Architecture&);
// For a schedule that the caller has already made.
Plan make_plan(const Config&, const Architecture&, const Schedule& schedule);
// Returns the same plan with one entry per rank, in order of rank.
Plan plan_each_rank(const Config&, const Architecture&);
nlohmann::ordered_json plan_json(const Plan&);
// Returns a table for people. Of many ranks, those with equal numbers of layers and parameters
// share a line unless `all_ranks` is true.
std::string plan_text(const Plan&, bool all_ranks = false);

// Returns the largest bytes of any rank by ledger category and, as "total", the largest peak of a
// rank's sum. StepFigures::peak_memory measures the same values.
std::map<std::string, std::int64_t> largest_rank(const Plan&);

}  // namespace trident
