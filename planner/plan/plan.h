// What a run will take and send, known before anything is allocated: from training steps that are
// run on a planning device (planner/plan/planned_rank.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "scheduler/action.h"
#include "settings/config.h"

namespace trident {

// Ranks that differ in nothing but their place are folded: `rank` and its coordinates are the first
// of `count`.
struct PlanRank {
  std::int64_t rank = 0;
  std::vector<int> at;        // coordinates, by axis (Plan::axes)
  std::int64_t pipeline = 0;  // place in the pipeline group
  std::int64_t count = 1;
  std::int64_t layers = 0;
  std::int64_t parameters = 0;                     // elements held, vocabulary padding included
  std::map<std::string, std::int64_t> bytes;       // the peak of each ledger category
  std::int64_t peak_bytes = 0;                     // of their sum
  std::map<std::string, std::int64_t> bytes_sent;  // a training step's, by process group
};

struct Plan {
  std::int64_t world_size = 0;
  std::vector<std::string> axes;  // their names
  std::int64_t parameters = 0;    // of the model: each once, without padding
  double flops_per_step = 0;      // forward and backward of the global batch (Megatron-LM's count)
  double bubble_ratio = 0;        // of the schedule with equal stages and free transfers
  // The same with each stage's FLOPs under the layer split, and how much more than the mean the
  // busiest pipeline rank has (0.25: a quarter more).
  std::vector<std::int64_t> layer_split;
  double imbalance = 0, bubble_ratio_of_split = 0;
  std::vector<PlanRank> ranks;  // by rank
};

// Throws RequestError where the schedule can't be made.
Plan make_plan(const Config&, const Architecture&);
Plan make_plan(const Config&, const Architecture&, const Schedule& schedule);  // known already
// The same with an entry for each rank, in their order.
Plan plan_each_rank(const Config&, const Architecture&);
nlohmann::ordered_json plan_json(const Plan&);
// For people: of many ranks those that are alike in one line, unless all are asked for.
std::string plan_text(const Plan&, bool all_ranks = false);

// Bytes by ledger category of the ranks where they are largest, and "total", the peak of their sum:
// what StepFigures::peak_memory measures.
std::map<std::string, std::int64_t> largest_rank(const Plan&);

}  // namespace trident
