// What the parts of a model cost, read from a trace of their modules (core/operation_trace.h): for
// any architecture, a user's own too.
#pragma once

#include <cstdint>
#include <vector>

#include "models/architecture.h"
#include "scheduler/simulate.h"
#include "settings/config.h"

namespace trident {

// FLOPs of one micro-batch, of all tensor-parallel ranks together: products as they are computed,
// with what backward computes again. Padding of the vocabulary is left out.
struct ModuleCost {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double model_flops = 0;  // of them all, as papers count (TracedOperation::model_flops)
  double total() const { return forward + backward_input + backward_weight; }
  ModuleCost& operator+=(const ModuleCost& other);
};

struct ModelCosts {
  ModuleCost embedding;            // before the first layer
  std::vector<ModuleCost> layers;  // each
  ModuleCost head;                 // after the last, with the gradients that it takes in forward

  ModuleCost mean_layer() const;
  double model_flops() const;
};

// Runs each module of the whole model once on a planning device, of layers that are alike one. A
// config whose batch isn't known yet counts for micro-batches of one sample.
ModelCosts model_costs(const Config&, const Architecture&);

// Of each stage under `split`: its layers, the first with the embedding, the last with the head.
StageTimes stage_costs(const ModelCosts&, const std::vector<std::int64_t>& split);

// FLOPs of a training step without recomputation (Megatron-LM's count). For GPT this is
// 72·B·s·l·h²(1 + s/(6h) + V/(12·l·h)) (Narayanan 2021).
double flops_per_step(const Config&, const Architecture&);
// The same with the config's costs known.
double flops_per_step(const Config&, const Architecture&, const ModelCosts& known);

}  // namespace trident
