// Cuts a model's layers into pipeline stages (pipeline.layer_split "auto").
#pragma once

#include <cstdint>
#include <vector>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

struct SplitProblem {
  std::int64_t layers = 0;
  double layer = 0;                // time of one; where they differ, the mean
  double first = 0, last = 0;      // time of the embedding and of the head
  std::vector<int> rank_of_stage;  // [stages], ranks counted from 0
  // Layers that each rank has memory for; empty: any number.
  std::vector<std::int64_t> most;
};

// Layers of each stage, at least one each: no other split has a rank that is busier than its
// busiest one, and among those none has a smaller sum of squared times, of ranks first, then of
// stages. Layers that are alike make PipeDream's partition (Narayanan et al. 2019, section 3.1) a
// choice of counts with convex costs, which taking one layer after the other where it adds least
// solves exactly (Fox 1966, "Discrete optimization via marginal analysis"). Empty if none fits the
// memory.
std::vector<std::int64_t> balanced_split(const SplitProblem& problem);

// What "auto" stands for, by the costs of the model's parts (engine/setup/model_costs.h). Of a
// config that is not filled in or checked yet: where the model can't be traced, its layers count
// alike.
std::vector<std::int64_t> automatic_split(const Config&, const Architecture&);

// The rank of each stage under the placements of the kinds: along a V, or round after round.
std::vector<int> rank_of_stages(int ranks, int chunks, bool v_shaped);

}  // namespace trident
