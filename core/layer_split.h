// Cuts a model's layers into pipeline stages, and what each part costs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"

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
// and a half as much backward, with no weights. Needs model and batch sizes.
LayerCosts layer_costs(const Config& config);

// Of each stage under `split`: its layers, the first with the embedding, the last with the head.
std::vector<PartCost> stage_costs(const LayerCosts& costs, const std::vector<std::int64_t>& split);

struct SplitProblem {
  std::vector<double> layer_time;  // [layers]
  double first = 0, last = 0;      // time of the embedding and of the head
  // Memory of stage s with layers [a, b): base[s] + sum of layer_memory; at most `limit`. Empty:
  // any.
  std::vector<double> layer_memory;  // [layers]
  std::vector<double> base_memory;   // [stages]
  double limit = 0;
};

// Layers of each of `stages` stages, at least one each: no other split into consecutive layers has
// a shorter slowest stage and, among those, a smaller sum of squared times (the dynamic programme
// of Narayanan et al. 2019, "PipeDream", section 3.1, without replication). Empty if none fits the
// memory. O(stages * layers^2).
std::vector<std::int64_t> balanced_split(const SplitProblem& problem, std::int64_t stages);

}  // namespace trident
