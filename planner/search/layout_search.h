// The best ways to lay a config out over so many devices of a machine: sizes of the axes, chunks,
// schedule, micro-batch, ZeRO stage, sequence parallelism, recomputation and the split of layers.
//
// Of all combinations those are found that no other beats in both time and memory (the Pareto
// front), both as simulated and planned (step_simulation.h). Each is first bounded from below
// (layout_bounds.h); in the order of their bounds on time they are simulated, but for those whose
// bounds something found before is better than already: they can't be on the front.
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
  std::int64_t global_batch_size = 0;  // of the config as it stands
  std::string assume;                  // habits (Habits::assume), "" for the config's own
  // Of layout_keys(), those that stay as `written` has them.
  std::vector<std::string> held = {};
  std::int64_t memory = 0;          // bytes a rank; 0: the machine's
  std::vector<std::int64_t> ranks;  // world sizes to look at
  bool fastest = false;             // only the fastest is asked for, not the front
  std::size_t wanted = 10;          // lines that are printed of each size
  std::int64_t threads = 1;         // that simulate; what is found is the same with any number
  std::function<void(const SearchProgress&)> progress = {};  // now and then; may be empty
};

struct FoundLayout {
  std::vector<std::string> set;  // overrides of the config
  std::string written;           // the config with them, ready for `train`
  Config config;
  double seconds = 0;           // of a step, simulated
  double least_seconds = 0;     // by its bound
  std::int64_t peak_bytes = 0;  // of the largest rank, planned
  double mfu = 0, bubble_ratio = 0;
  // What it loses, as parts of the step: computing again, the bubble, communication that is waited
  // for, other kernels than products; what is left are products.
  double recomputed = 0, waiting = 0, communication = 0, kernels = 0;
  bool on_front = false;  // nothing here is better in time, memory and devices at once
  // Others of the front that are hardly slower and take hardly less, slower ones last.
  std::vector<FoundLayout> near = {};
};

struct LayoutSearch {
  // By ranks, then the fastest first: the front of each number of ranks, near ones folded; where
  // the fastest is asked for, all that fit of those that had to be simulated.
  std::vector<FoundLayout> plans;
  std::map<std::string, std::int64_t> pruned;  // reason, how many
  std::vector<std::int64_t> nothing_on;        // world sizes on which nothing fits
  std::int64_t considered = 0, simulated = 0;
};

// Of layout_keys() those that it gives (LayoutRequest::held), but for words.
std::vector<std::string> given_keys(const LoadedConfig&);
// RequestError where a config whose parallel is "auto" doesn't give its global batch, or gives a
// schedule's file, which is for one layout.
void need_batch(const LoadedConfig&);

// RequestError where nothing fits: what the thriftiest layout takes, and on how many ranks one
// would fit.
LayoutSearch search_layouts(const LayoutRequest&);

nlohmann::ordered_json layouts_json(const LayoutSearch&, const LayoutRequest&);
std::string layouts_text(const LayoutSearch&, const LayoutRequest&);

}  // namespace trident
