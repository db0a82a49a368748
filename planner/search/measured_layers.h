// Measures the costs of a layer for the bounds of a search (layout_bounds.h): a pipeline of two
// ranks is planned and priced with one and two layers (or recomputed groups of layers) on a rank; a
// layer costs the difference, the ends of the model the rest.
//
// A MeasuredLayers caches its results, so one thread may use it at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/ledger.h"
#include "planner/machine/machine.h"
#include "planner/plan/planned_rank.h"
#include "planner/search/layout_choices.h"
#include "planner/simulation/step_costs.h"

namespace trident {

// The cost of a layer, and the extra costs of the first and the last stage of the model.
struct CostParts {
  double layer = 0, first = 0, last = 0;
  double of(double layers, bool has_first, bool has_last) const {
    return layer * layers + (has_first ? first : 0) + (has_last ? last : 0);
  }
};

// The costs of layouts that divide and compute a layer alike. Bytes are a rank's, of states that
// ZeRO doesn't shard.
struct LayerCosts {
  std::string problem;  // why no layout of this kind is valid; "": it is
  // Seconds of a micro-batch, without exchanges of tokens and of positions.
  CostParts forward, backward;
  CostParts sent_forward, sent_backward;  // bytes of a micro-batch's exchanges of tokens
  CostParts weights, gradients, state;    // bytes of states
  double gathered = 0;           // bytes of a layer's weights that ZeRO-3 gathers, without experts
  double gathered_experts = 0;   // the same of its experts
  double experts = 0;            // the experts' fraction of a layer's elements
  double last_experts = 0;       // the same of the head with its layers
  double saved_activations = 0;  // bytes of activations that a layer saves for a micro-batch
  double one_last = 0;           // bytes of the last place without states, with one layer
  double two_last = 0;           // the same with two layers
  std::int64_t unit = 1;         // layers that are counted as one here
};

class MeasuredLayers {
 public:
  // `machine`: without skew, whose cost depends on where a layer stands. All must outlive this
  // object.
  MeasuredLayers(const LayoutChoices& choices, const Machine& machine,
                 const Assumptions& assumptions)
      : choices_(choices), machine_(machine), assumptions_(assumptions) {}

  // Layouts are alike that have equal tensor, context and expert parallelism, micro-batch, sequence
  // parallelism and recomputation.
  const LayerCosts& of(const Layout&);

 private:
  // One place of the pipeline of two ranks.
  struct Place {
    double forward = 0, backward = 0;            // the least of all micro-batches
    double sent_forward = 0, sent_backward = 0;  // the same
    PlannedMemory memory;
    double gathered = 0, gathered_experts = 0, messages = 0;
    double experts = 0, others = 0;  // elements of experts, and of other parameters
    double dynamic() const;          // bytes without states and messages
  };
  std::array<Place, 2> measure(const Layout&, std::int64_t first, std::int64_t last) const;
  LayerCosts measured(const Layout&) const;

  const LayoutChoices& choices_;
  const Machine& machine_;
  const Assumptions& assumptions_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool,
                      std::string>,
           LayerCosts>
      costs_;
};

}  // namespace trident
