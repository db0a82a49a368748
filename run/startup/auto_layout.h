// What "parallel": "auto" of a config stands for: the layout that planner/search/layout_search.h
// finds best on this job's machine, with what the config gives of pipeline, batch, ZeRO and
// recomputation as it is.
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

// How the machine is known.
struct MachineSource {
  std::optional<Machine> machine = {};  // this one, whatever the config says
  std::string assume = {};              // LayoutRequest::assume
  // Else runtime.machine's file, else what this measures (run/measurement/bench.h) of small models
  // with that many cores. Not there: RequestError.
  std::function<Machine(const std::vector<Config>& models, std::int64_t cores)> measure = {};
  std::string folder = "configs/machines";            // of machines that runtime.machine names
  std::function<void(const std::string&)> tell = {};  // a line while it is measured; may be empty
  std::function<void(const SearchProgress&)> progress = {};  // LayoutRequest::progress
};

struct JobSize {
  std::int64_t ranks = 1, ranks_per_node = 1;
  std::int64_t memory = 0;  // bytes a rank
};

struct ChosenLayout {
  std::vector<std::string> set;  // overrides that come after all others
  std::string text;              // what was found, for people
};

// `base`: as loaded (LoadedConfig::parallel_is_auto) with `load`. RequestError where the global
// batch isn't given, the machine isn't known or nothing fits.
ChosenLayout choose_layout(const LoadedConfig& base, const LoadOptions& load, const JobSize&,
                           const MachineSource&);

}  // namespace trident
