// Searches for the best layouts of a config on a number of devices of a machine: sizes of the axes,
// chunks, schedule, micro-batch, ZeRO stage, sequence parallelism, recomputation and the split of
// layers.
//
// The result is the Pareto front: the combinations that no other beats in both time and memory, as
// simulated and planned (step_simulation.h). Each combination first gets lower bounds
// (layout_bounds.h). The search then simulates combinations in the order of their bounds on time.
// It skips a combination if a result already beats its bounds, since that combination can't be on
// the front.
//
// Needs no other rank and no device. The search starts its own threads and calls `progress` on the
// caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/machine/machine.h"
#include "planner/search/search_progress.h"
#include "planner/simulation/step_costs.h"
#include "planner/simulation/step_simulation.h"
#include "settings/config.h"

namespace trident {

struct LayoutRequest {
  std::string written;  // LoadedConfig::written
  LoadOptions load;
  Machine machine;
  std::int64_t global_batch_size = 0;  // of the config as it is
  std::string assume;                  // assumptions (Assumptions::assume); "": the config's own
  // The keys of layout_keys() that keep their values in `written`.
  std::vector<std::string> held = {};
  std::int64_t memory = 0;          // bytes per rank; 0: the machine's
  std::vector<std::int64_t> ranks;  // world sizes to search
  bool fastest = false;             // search for the fastest layout only, not for the front
  std::size_t wanted = 10;          // layouts that are printed for each world size
  std::int64_t threads = 1;         // for simulations; the result doesn't depend on it
  std::function<void(const SearchProgress&)> progress = {};  // called now and then; may be empty
};

struct FoundLayout {
  std::vector<std::string> set;  // overrides of the config
  std::string written;           // the config with the overrides, ready for `train`
  Config config;
  double seconds = 0;           // simulated time of a step
  double least_seconds = 0;     // lower bound of the time
  std::int64_t peak_bytes = 0;  // planned peak of the largest rank
  double mfu = 0, bubble_ratio = 0;
  // The step's losses, as fractions of its time: recomputation, the bubble, exposed communication,
  // and kernels other than products. The remainder are products.
  double recomputed = 0, waiting = 0, communication = 0, kernels = 0;
  bool on_front = false;  // no plan of the result is better in time, memory and devices at once
  // Other layouts of the front that are hardly slower and take hardly less memory, fastest first.
  std::vector<FoundLayout> near = {};
};

struct LayoutSearch {
  // Sorted by number of ranks, then by time: the front of each number of ranks, with near layouts
  // folded. If `fastest` is set, all simulated layouts that fit.
  std::vector<FoundLayout> plans;
  std::map<std::string, std::int64_t> pruned;  // count by reason
  std::vector<std::int64_t> nothing_on;        // world sizes on which nothing fits
  std::int64_t considered = 0, simulated = 0;
};

// Returns the keys of layout_keys() that the config gives (for LayoutRequest::held), except a
// micro-batch size of "auto".
std::vector<std::string> given_keys(const LoadedConfig&);
// Throws RequestError where a config whose parallel is "auto" gives no global batch, or gives a
// schedule file, which fits one layout only.
void need_batch(const LoadedConfig&);

// Throws RequestError where no layout fits. The error has the least memory that any layout takes,
// and the number of ranks on which one would fit.
LayoutSearch search_layouts(const LayoutRequest&);

nlohmann::ordered_json layouts_json(const LayoutSearch&, const LayoutRequest&);
std::string layouts_text(const LayoutSearch&, const LayoutRequest&);

}  // namespace trident
