// Chooses the layout of a config whose "parallel" is "auto": the fastest layout that
// planner/search/layout_search.h finds for this job's machine. Values that the config gives for
// pipeline, batch, ZeRO and recomputation stay as they are.
//
// load() (run/startup/job_config.h) calls choose_layout() on rank 0 and sends the result to the
// other processes; the function itself is not collective.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/machine/machine.h"
#include "planner/search/search_progress.h"
#include "settings/config.h"

namespace trident {

// Where the description of the machine comes from.
struct MachineSource {
  std::optional<Machine> machine = {};  // overrides the config's runtime.machine
  std::string assume = {};              // LayoutRequest::assume
  // Without `machine`, the config's runtime.machine names the file to read. Without that either,
  // this function measures small models on `cores` cores (run/measurement/bench.h). RequestError
  // where it is empty, and for links that it can't measure: between nodes or between GPUs.
  std::function<Machine(const std::vector<Config>& models, std::int64_t cores)> measure = {};
  std::string folder = "configs/machines";              // where runtime.machine is looked up
  std::function<void(const std::string&)> report = {};  // progress of the measurement; may be empty
  std::function<void(const SearchProgress&)> progress = {};  // LayoutRequest::progress
};

struct JobSize {
  std::int64_t ranks = 1, ranks_per_node = 1;
  std::int64_t memory = 0;  // bytes a rank
};

struct ChosenLayout {
  std::vector<std::string> set;  // overrides of the config, applied last
  std::string text;              // the layouts found, for people
};

// `base` is the config loaded with `load`, with LoadedConfig::parallel_is_auto set. RequestError
// where the config doesn't give the global batch, where the machine isn't known, or where no layout
// fits its memory.
ChosenLayout choose_layout(const LoadedConfig& base, const LoadOptions& load, const JobSize&,
                           const MachineSource&);

}  // namespace trident
