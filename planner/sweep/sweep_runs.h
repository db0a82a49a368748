// The runs of a sweep, each in processes of its own: those that a folder has, and running the rest.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/sweep/sweep.h"

namespace trident {

struct SweepRuns {
  bool whole = true;                                            // it wasn't asked to stop
  std::map<std::string, std::vector<nlohmann::json>> of_point;  // lines of runs.jsonl, by label
};

// Holds the folder meanwhile. RequestError where it is another sweep's, or nobody's.
SweepRuns run_points(const SweepRequest&, const SweepPlan&, const nlohmann::ordered_json& machine);
// Where a run's own files are.
std::string run_folder(const SweepRequest&, const SweepPoint&, int repeat);

}  // namespace trident
