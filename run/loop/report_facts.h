// The facts that a run's report states beside its numbers. World rank 0 alone reads them.
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
  std::optional<Plan> plan;  // the report makes it where none is given
  JobRate rate;              // for MFU; of no machine: unknown
  // Program, libraries, processor: with others a resumed run has other last digits, so checkpoints
  // have them, too.
  std::map<std::string, std::string> made_by;
  std::vector<std::pair<std::string, std::string>> start;  // of this start: command, version, host
};

}  // namespace trident
