// Splits a model's layers into pipeline stages (pipeline.layer_split "auto"). Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "models/architecture.h"
#include "settings/config.h"

namespace trident {

struct SplitProblem {
  std::int64_t layers = 0;
  double layer = 0;                // time of one layer; the mean if layers differ
  std::vector<double> each_layer;  // the time of every layer, if they differ; else empty
  double first = 0, last = 0;      // time of the embedding and of the head
  std::vector<int> rank_of_stage;  // [stages], ranks counted from 0
  // The number of layers that each rank has memory for; empty: no limit.
  std::vector<std::int64_t> most;
};

// The number of layers of each stage, at least one each. The split minimises the time of the
// busiest rank. Among these splits it minimises the sum of squared times, of ranks first, then of
// stages. With equal layers, PipeDream's partition (Narayanan et al. 2019, section 3.1) becomes a
// choice of counts with convex costs. Placing one layer after the other where it adds least solves
// this exactly (Fox 1966, "Discrete optimization via marginal analysis"). Layers that differ are
// split by their mean first; then layers move from stage to stage while this lowers the busiest
// rank's time. Empty if no split fits the memory.
std::vector<std::int64_t> balanced_split(const SplitProblem& problem);

// The split for "auto", by the costs of the model's parts (engine/setup/model_costs.h). The config
// need not be completed or checked. If the model can't be traced, all layers count the same.
std::vector<std::int64_t> automatic_split(const Config&, const Architecture&);

// The rank of each stage: along a V, or round after round (looped).
std::vector<int> rank_of_stages(int ranks, int chunks, bool v_shaped);

}  // namespace trident
