// The costs of a model's parts, read from a trace of their modules (core/operation_trace.h). It
// works for any architecture, also a user's own.
#pragma once

#include <cstdint>
#include <vector>

#include "models/architecture.h"
#include "scheduler/simulate.h"
#include "settings/config.h"

namespace trident {

// FLOPs of one micro-batch, of all tensor-parallel ranks together: products as they are computed,
// including recomputation in backward, without padding of the vocabulary.
struct ModuleCost {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double model_flops = 0;  // of the whole module, as papers count (TracedOperation::model_flops)
  double total() const { return forward + backward_input + backward_weight; }
  ModuleCost& operator+=(const ModuleCost& other);
};

struct ModelCosts {
  ModuleCost embedding;            // before the first layer
  std::vector<ModuleCost> layers;  // one entry per layer
  ModuleCost head;                 // after the last layer, with the gradients that it computes in
                                   // forward

  ModuleCost mean_layer() const;
  // The total of each layer; empty if all are equal.
  std::vector<double> different_layers() const;
  double model_flops() const;
};

// Runs each module of the complete model once on a planning device; of equal layers only one. If
// the config's batch isn't known yet, a micro-batch counts as one sample.
ModelCosts model_costs(const Config&, const Architecture&);

// The costs of each stage under `split`: of its layers, and of the embedding in the first stage and
// the head in the last.
StageTimes stage_costs(const ModelCosts&, const std::vector<std::int64_t>& split);

// FLOPs of a training step without recomputation (Megatron-LM's count). For GPT this is
// 72·B·s·l·h²(1 + s/(6h) + V/(12·l·h)) (Narayanan 2021).
double flops_per_step(const Config&, const Architecture&);
// As above, with the config's costs given.
double flops_per_step(const Config&, const Architecture&, const ModelCosts& known);

}  // namespace trident
