// What layouts take, estimated: a model's time and memory from those of one and two layers, traced
// and priced by the machine. For choosing what to simulate whole.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/ledger.h"
#include "training/lab/layout_choices.h"
#include "training/lab/step_costs.h"
#include "training/plan/planned_rank.h"

namespace trident {

class LayoutEstimator {
 public:
  // RequestError where the machine has no rate for what the config computes in.
  LayoutEstimator(const LayoutRequest&, const LayoutChoices&);

  // Fills in seconds and bytes. Gives why the layout isn't valid, as far as that is seen here; ""
  // where it is.
  std::string estimate(Layout&);
  // Microseconds that simulating it whole took on an AMD EPYC of 2023: traced layers and replayed
  // actions.
  std::int64_t effort(const Layout&) const;

 private:
  // What one layer and the rest of the model take of a device with all of the pipeline.
  struct Piece {
    std::string problem;                                                                // "": none
    double forward_layer = 0, backward_layer = 0, forward_ends = 0, backward_ends = 0;  // seconds
    std::array<double, category_count> layer{}, ends{};  // bytes, of one micro-batch in flight
    double around = 0;                                   // seconds of the update, of each layer
  };
  // Times and memory of a model of so many layers on one pipeline rank.
  struct Measured {
    double forward = 0, backward = 0, around = 0;
    PlannedMemory memory;
  };
  Measured measure(const Layout&, std::int64_t layers) const;
  const Piece& piece(const Layout&);
  double share(const Layout&) const;
  void fill_in(Layout&, const Piece&) const;

  const LayoutRequest& request_;
  const LayoutChoices& choices_;
  double library_ = 0;  // bytes
  Habits habits_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool, std::string>, Piece> pieces_;
};

}  // namespace trident
