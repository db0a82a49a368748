// What an asynchronous schedule has in flight where an iteration ends, in a checkpoint: which
// micro-batches, and by which updates, follows from few numbers; the weights that they use lie
// beside it (parallel/zero/weight_stash.h).
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
RunSizes run_sizes(const Config&);

// Adds what goes_on_in_flight() needs to `manifest`, saved at the end of iteration `iterations`;
// `begun` is of that moment.
void list_in_flight(const RunSizes&, const Schedule&, std::int64_t iterations, const Begun& begun,
                    Manifest& manifest);

// Of a run that goes on from `manifest` and makes the same schedule of the same micro-batches.
// Where it makes another one its pipeline is empty, and filled anew: begun.iterations is 0.
Begun in_flight_in(const RunSizes&, const Schedule&, const Manifest& manifest);

// Whether something was in flight when it was saved.
bool has_in_flight(const Manifest& manifest);

}  // namespace trident
