// The micro-batches that an asynchronous schedule has in flight at the end of an iteration, in a
// checkpoint. A few numbers in the manifest determine these micro-batches and the updates that
// their weights have had; the weights themselves are part of the state
// (parallel/zero/weight_stash.h). Pure functions, for any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"
#include "scheduler/run_lists.h"
#include "settings/config.h"

namespace trident {

// The sizes that micro-batches in flight depend on.
struct RunSizes {
  std::int64_t global_batch_size = 0, train_iters = 0;
  std::vector<std::int64_t> layer_split = {};
};
RunSizes run_sizes(const BatchConfig&, const TrainingConfig&, const PipelineConfig&);

// Adds the numbers that in_flight_in() needs to `manifest`, which is saved after `iterations`
// iterations, with `begun` at that moment. Adds nothing for a synchronous schedule.
void list_in_flight(const RunSizes&, const Schedule&, std::int64_t iterations, const Begun& begun,
                    Manifest& manifest);

// The state of the pipeline of a run that resumes from `manifest`. If the run has another schedule
// or other micro-batches than the saved one, its pipeline begins empty: the result's iterations
// is 0.
Begun in_flight_in(const RunSizes&, const Schedule&, const Manifest& manifest);

// Whether micro-batches were in flight when the manifest was saved.
bool has_in_flight(const Manifest& manifest);

}  // namespace trident
