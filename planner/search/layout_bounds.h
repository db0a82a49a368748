// Lower bounds of a layout's step time and of its largest rank's memory. They follow from the costs
// of two and three layers on a pipeline of two ranks, traced and priced by the machine. A search
// leaves a layout out if it knows a layout that is better than these bounds.
//
// Time. A place of the pipeline computes its layers and ends for each micro-batch. It can't begin
// before the stages ahead of its first action's stage have run a forward. If its last action is a
// full backward (input and weight gradients), the backwards of the stages ahead of that action's
// stage follow. The collectives that it overlaps with compute run one after the other. The bound
// leaves out exposed collectives, messages and the update.
//
// Memory. The bound adds the exact shards of the states and the saved activations of the
// micro-batches that the schedule has in flight, each as large as the smallest chunk's. For the
// last place it takes the measured memory without states with one micro-batch in flight, if that is
// more. From one layer to the next, this memory grows at least as much as from the first to the
// second, since it is a maximum of sums that each grow linearly.
//
// A LayoutBounds caches measurements, so one thread may use it at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/ledger.h"
#include "engine/setup/model_costs.h"
#include "planner/plan/planned_rank.h"
#include "planner/search/layout_choices.h"
#include "planner/simulation/step_costs.h"
#include "scheduler/action.h"

namespace trident {

class LayoutBounds {
 public:
  // The request and the choices must outlive this object. Throws RequestError where the machine has
  // no rate for the config's type.
  LayoutBounds(const LayoutRequest&, const LayoutChoices&);

  // Fills in seconds and bytes. Returns the reason if it finds the layout invalid, else "".
  std::string bound(Layout&);

 private:
  // The cost of a layer, and the extra costs of the first and the last stage of the model.
  struct Parts {
    double layer = 0, first = 0, last = 0;
    double of(double layers, bool has_first, bool has_last) const {
      return layer * layers + (has_first ? first : 0) + (has_last ? last : 0);
    }
  };
  // The measured costs of layouts with equal tp, micro-batch, sequence parallelism and
  // recomputation.
  struct LayerCosts {
    std::string problem;              // empty: none
    Parts forward, backward;          // seconds of a micro-batch
    Parts weights, gradients, state;  // bytes of states, unsharded
    double gathered = 0;              // bytes of a layer's weights that ZeRO-3 gathers
    double experts = 0;            // of a layer's elements on the measured rank, those of experts
    double last_experts = 0;       // the same of the head with its layers
    double expert_ranks = 1;       // the ranks over which these are divided
    double saved_activations = 0;  // bytes of activations that a layer saves for a micro-batch
    double one_last = 0;           // bytes of the last place without states, with one layer
    double two_last = 0;           // the same with two layers
    std::int64_t unit = 1;         // layers that are counted as one here
  };
  // One place of the pipeline of two ranks.
  struct Measured {
    double forward = 0, backward = 0;  // the least of all micro-batches
    PlannedMemory memory;
    double gathered = 0, messages = 0;
    double experts = 0, others = 0;  // elements of experts, and of other parameters
    double dynamic() const;          // bytes without states and messages
  };
  // Values that follow from the sizes of the axes.
  struct World {
    GroupShape sharers;   // the ranks that share the first rank's states and gradients
    GroupShape exchange;  // those with which it exchanges tokens
    double library = 0;   // bytes of a rank that its ledger doesn't count
  };
  // The properties of a schedule that the bounds need.
  struct Lists {
    std::string problem;
    bool asynchronous = false;
    std::vector<std::vector<int>> placement;
    // [p] micro-batches in flight; a chunk counts 1 / chunks. A lower bound if unknown.
    std::vector<double> in_flight;
    std::vector<int> first;  // [p] stage of a rank's first action; 0 if unknown
    std::vector<int> last;   // [p] stage of its last action if that is a full backward, else 0
  };

  std::vector<std::int64_t> layers_with_experts(const std::vector<std::int64_t>& split) const;
  std::array<Measured, 2> measure(const Layout&, std::int64_t first, std::int64_t last) const;
  LayerCosts measured_piece(const Layout&) const;
  const LayerCosts& layer(const Layout&);
  Lists lists_of(const Layout&) const;
  const Lists& lists(const Layout&);
  const ModelCosts& costs(const Layout&);
  const std::vector<std::int64_t>& split(const Layout&, const Lists&);
  bool sums_each_micro_batch(const Layout&);
  const World& world(const Layout&);
  double least_share_of_rows(const Layout&) const;
  double exchange_seconds(const Layout&);
  double sent_overlapped(const Layout&, const LayerCosts&, std::int64_t layers);
  double held(const Parts&, double units, bool has_first, bool has_last) const;
  double seconds(const Layout&, const LayerCosts&, const Lists&,
                 const std::vector<std::int64_t>& split);
  double bytes(const Layout&, const LayerCosts&, const Lists&,
               const std::vector<std::int64_t>& split);

  const LayoutRequest& request_;
  const LayoutChoices& choices_;
  Machine machine_;  // without skew, whose cost depends on where a layer stands
  Machine links_;    // without latencies
  Assumptions assumptions_;
  std::map<std::string, ModelCosts> costs_;  // by recomputation granularity
  std::map<std::tuple<std::int64_t, bool, std::int64_t, bool, std::string>, LayerCosts>
      layer_costs_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, Lists> lists_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, bool, std::string>,
           std::vector<std::int64_t>>
      splits_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>, World>
      worlds_;
  std::map<std::int64_t, bool> sums_;  // by ZeRO stage
};

}  // namespace trident
