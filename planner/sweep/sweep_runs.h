// Runs the points of a sweep, each in processes of its own, and reads the runs that a folder
// already holds.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/sweep/sweep.h"

namespace trident {

struct SweepRuns {
  bool whole = true;  // false: the sweep was stopped early
  std::map<std::string, std::vector<nlohmann::json>> of_point;  // lines of runs.jsonl, by label
};

// Locks the folder until it returns. Throws RequestError where the folder holds another sweep or
// other files.
SweepRuns run_points(const SweepRequest&, const SweepPlan&, const nlohmann::ordered_json& machine);
// Returns the folder of a run's own files.
std::string run_folder(const SweepRequest&, const SweepPoint&, int repeat);

}  // namespace trident
