// The facts that a run's report states in addition to its measurements. World rank 0 alone reads
// them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"
#include "report/best_rates.h"

namespace trident {

struct ReportFacts {
  std::optional<Plan> plan;  // if empty, the reporter makes it
  JobRate rate;              // for MFU; unknown if it has no machine
  // Program, libraries, processor. A resumed run with others has other last digits, so checkpoints
  // store them, too.
  std::map<std::string, std::string> made_by;
  std::vector<std::pair<std::string, std::string>> start;  // this start's command, version, host
};

}  // namespace trident
