// What a layout takes at least: lower bounds of its step's time and of its largest rank's memory,
// from those of two and three layers on a pipeline of two ranks, traced and priced by the machine.
// A search leaves a layout out where something it knows is better than these bounds.
//
// Time. A place of the pipeline computes what its layers and ends take, for each micro-batch; it
// can't begin before the stages before its first one have run a forward, and where its last action
// is a whole backward the stages before that one come after it. What it sends beside compute goes
// one after the other. Exposed collectives, messages and the update are left out.
//
// Memory. States by their exact parts; the records of as many micro-batches as the schedule has in
// flight, each as large as that of the smallest chunk; or, where it is more, what a place takes
// beside its states with one micro-batch in flight, which grows from one layer to the next at least
// as it does from the first to the second, being the largest of sums that each grow evenly.
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
  // RequestError where the machine has no rate for what the config computes in.
  LayoutBounds(const LayoutRequest&, const LayoutChoices&);

  // Fills in seconds and bytes. Gives why the layout isn't one, as far as that is seen here; ""
  // where it is.
  std::string bound(Layout&);

 private:
  // What a layer takes, and the two ends of the model beside it.
  struct Parts {
    double layer = 0, first = 0, last = 0;
    double of(double layers, bool has_first, bool has_last) const {
      return layer * layers + (has_first ? first : 0) + (has_last ? last : 0);
    }
  };
  struct Piece {
    std::string problem;              // "": none
    Parts forward, backward;          // seconds of a micro-batch
    Parts weights, gradients, state;  // bytes of states, whole
    double gathered = 0;              // bytes of a layer's weights that ZeRO-3 gathers
    double record = 0;                // bytes that a layer keeps of a micro-batch
    double one_last = 0;              // bytes of the last place beside states, with one layer
    double two_last = 0;              // and two
    std::int64_t unit = 1;            // layers that count as one here
  };
  // One place of the small pipeline.
  struct Measured {
    double forward = 0, backward = 0;  // the least of any micro-batch
    PlannedMemory memory;
    double gathered = 0, messages = 0;
    double dynamic() const;  // bytes beside states and messages
  };
  // What follows from the sizes of the axes.
  struct World {
    GroupShape sharers;  // of the first rank's states and gradients
    double library = 0;  // bytes of a rank
  };
  // Of a schedule, what the bounds need of it.
  struct Lists {
    std::string problem;
    bool asynchronous = false;
    std::vector<std::vector<int>> placement;
    std::vector<double> in_flight;  // [p] shares; the least where it isn't known
    std::vector<int> first;         // [p] stage of a rank's first action; 0 where it isn't known
    std::vector<int> last;          // [p] of its last one, where that is a whole backward; else 0
  };

  std::array<Measured, 2> measure(const Layout&, std::int64_t first, std::int64_t last) const;
  Piece measured_piece(const Layout&) const;
  const Piece& piece(const Layout&);
  Lists lists_of(const Layout&) const;
  const Lists& lists(const Layout&);
  const ModelCosts& costs(const Layout&);
  const std::vector<std::int64_t>& split(const Layout&, const Lists&);
  bool sums_each_micro_batch(const Layout&);
  const World& world(const Layout&);
  double sent_overlapped(const Layout&, const Piece&, std::int64_t layers);
  double held(const Parts&, double units, bool has_first, bool has_last) const;
  double seconds(const Layout&, const Piece&, const Lists&, const std::vector<std::int64_t>& split);
  double bytes(const Layout&, const Piece&, const Lists&, const std::vector<std::int64_t>& split);

  const LayoutRequest& request_;
  const LayoutChoices& choices_;
  Machine machine_;  // without what isn't the same wherever it stands
  Machine links_;    // without latencies
  Habits habits_;
  std::map<std::string, ModelCosts> costs_;  // by recomputation
  std::map<std::tuple<std::int64_t, std::int64_t, bool, std::string>, Piece> pieces_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, Lists> lists_;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, bool, std::string>,
           std::vector<std::int64_t>>
      splits_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, World> worlds_;
  std::map<std::int64_t, bool> sums_;  // by ZeRO stage
};

}  // namespace trident
