// What a machine is measured with where a config's layout is to be chosen on it: models like the
// config's, small enough to be measured in a moment. A product or an attention of another size
// takes as long for a FLOP as the nearest that were measured (planner/machine/operation_times.h).
#pragma once

#include <cstdint>
#include <vector>

#include "run/startup/auto_layout.h"
#include "settings/config.h"

namespace trident {

struct MeasureBudget {
  double seconds = 20;                 // of all measurements
  std::int64_t bytes = 2'000'000'000;  // that all ranks measured at once hold
  double flops = 1e10;                 // of a rank's step
};

// A layer or two of the model, as ranks of each tensor-parallel size run them: one micro-batch of
// one sequence, and where that is short, one of some sequences. Where that is above the budget or
// the job's memory, vocabulary, sequence, number of layers and width are halved in turn.
// RequestError where none is small enough.
std::vector<Config> models_to_measure(const LoadedConfig& base, const LoadOptions&, const JobSize&,
                                      const MeasureBudget&);

}  // namespace trident
