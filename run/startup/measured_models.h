// The models with which a machine is measured before a config's layout is chosen for it: models
// like the config's, small enough to be measured quickly. A product or an attention of another size
// is assumed to take as long per FLOP as the nearest measured sizes
// (planner/machine/operation_times.h).
#pragma once

#include <cstdint>
#include <vector>

#include "run/startup/auto_layout.h"
#include "settings/config.h"

namespace trident {

struct MeasureBudget {
  double seconds = 20;                 // for all measurements together
  std::int64_t bytes = 2'000'000'000;  // held by all ranks that are measured at once
  double flops = 1e10;                 // of one rank's step
};

// Returns one or two layers of the model for each tensor-parallel size within a node, with a
// micro-batch of one sequence; for a short sequence also with a micro-batch of several. A model
// that exceeds the budget or the job's memory is made smaller: vocabulary, sequence length, number
// of layers and width are halved in turn. RequestError where no model is small enough.
std::vector<Config> models_to_measure(const LoadedConfig& base, const LoadOptions&, const JobSize&,
                                      const MeasureBudget&);

}  // namespace trident
