// Lower bounds of a layout's step time and of its largest rank's memory. They follow from the costs
// of a layer (measured_layers.h), the schedule's lists and the sizes of groups. A search leaves a
// layout out if it knows a layout that is better than these bounds.
//
// Time. A place of the pipeline computes its layers and ends for each micro-batch. It can't begin
// before the stages ahead of its first action's stage have run a forward. If its last action is a
// full backward (input and weight gradients), the backwards of the stages ahead of that action's
// stage follow. The collectives that it overlaps with compute run one after the other: the sums of
// gradients after the begin of their backward, the gathers of updated weights after the last of
// these. The bound leaves out other exposed collectives, messages and the update.
//
// Memory. The bound adds the exact shards of the states and the saved activations of the
// micro-batches that the schedule has in flight, each as large as the smallest chunk's. For the
// last place it takes the measured memory without states with one micro-batch in flight, if that is
// more. From one layer to the next, this memory grows at least as much as from the first to the
// second, since it is a maximum of sums that each grow linearly.
//
// A LayoutBounds caches measurements, so one thread may use it at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "engine/setup/model_costs.h"
#include "planner/search/layout_choices.h"
#include "planner/search/measured_layers.h"
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
  // Values that follow from the sizes of the axes.
  struct World {
    GroupShape sharers;         // the ranks that share the first rank's states and gradients
    GroupShape expert_sharers;  // the ranks that share those of its experts
    GroupShape exchange;        // those with which it exchanges tokens
    double library = 0;         // bytes of a rank that its ledger doesn't count
  };
  // The properties of a schedule that the bounds need.
  struct Lists {
    std::string problem;
    bool asynchronous = false;
    bool whole = false;  // all backwards are full
    std::vector<std::vector<int>> placement;
    // [p] micro-batches in flight; a chunk counts 1 / chunks. A lower bound if unknown.
    std::vector<double> in_flight;
    std::vector<int> first;  // [p] stage of a rank's first action; 0 if unknown
    std::vector<int> last;   // [p] stage of its last action if that is a full backward, else 0
  };

  std::vector<std::int64_t> layers_with_experts(const std::vector<std::int64_t>& split) const;
  // Whether some layers of a model with experts have none.
  bool has_dense_layers() const;
  Lists lists_of(const Layout&) const;
  const Lists& lists(const Layout&);
  const ModelCosts& costs(const Layout&);
  const std::vector<std::int64_t>& split(const Layout&, const Lists&);
  bool sums_each_micro_batch(const Layout&);
  const World& world(const Layout&);
  // The seconds of a collective over a layer's `bytes`, the experts' among their fewer holders.
  double over_holders(const Layout&, const LayerCosts&, Operation, double bytes);
  // The seconds of the sums of `layers` layers' gradients, one after the other.
  double gradient_sums(const Layout&, const LayerCosts&, std::int64_t layers);
  // The seconds of the gathers of updated weights (ZeRO 1 and 2).
  double updated_weights(const Layout&, const LayerCosts&, std::int64_t layers);
  // The seconds of a micro-batch's gradient sums and weight gathers, one after the other.
  double sent_overlapped(const Layout&, const LayerCosts&, std::int64_t layers);
  double held(const CostParts&, double units, bool has_first, bool has_last) const;
  double seconds(const Layout&, const LayerCosts&, const Lists&,
                 const std::vector<std::int64_t>& split);
  double bytes(const Layout&, const LayerCosts&, const Lists&,
               const std::vector<std::int64_t>& split);

  const LayoutRequest& request_;
  const LayoutChoices& choices_;
  Machine machine_;  // without skew, whose cost depends on where a layer stands
  Machine links_;    // without latencies
  Assumptions assumptions_;
  MeasuredLayers layers_;
  std::map<std::string, ModelCosts> costs_;  // by recomputation granularity
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, Lists> lists_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, bool, std::string>,
           std::vector<std::int64_t>>
      splits_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                      std::int64_t>,
           World>
      worlds_;
  std::map<std::int64_t, bool> sums_;  // by ZeRO stage
};

}  // namespace trident
