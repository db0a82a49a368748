// Cuts a model's layers into pipeline stages, and what each part costs.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"

namespace trident {

// FLOPs of one micro-batch, of all tensor-parallel ranks together.
struct PartCost {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double total() const { return forward + backward_input + backward_weight; }
  PartCost& operator+=(const PartCost& other);
};

struct LayerCosts {
  PartCost layer;      // every transformer layer is alike
  PartCost embedding;  // before the first: a lookup, no product
  PartCost head;  // after the last: the vocabulary's product, whose gradients it takes in forward
};

// Products only: 2 for each weight and token; attention's two products over the causal half, twice
// and a half as much backward, with no weights; and what backward computes again. Needs model and
// batch sizes.
LayerCosts layer_costs(const Config& config);

// Of each stage under `split`: its layers, the first with the embedding, the last with the head.
std::vector<PartCost> stage_costs(const LayerCosts& costs, const std::vector<std::int64_t>& split);

struct SplitProblem {
  std::int64_t layers = 0;
  double layer = 0;                // time of one; all layers are alike
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

// The rank of each stage under the placements of the kinds: along a V, or round after round.
std::vector<int> rank_of_stages(int ranks, int chunks, bool v_shaped);

}  // namespace trident
