// Where a run was started again: what its curves mark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/run_report.h"

namespace trident {

struct Resumption {
  struct Change {
    std::string name, now, before;  // a fact of the start ("layout", "threads")
  };
  std::int64_t after = 0;  // iterations that were kept
  double seconds = 0;      // since begin_of(run)
  std::string layout;      // "" where it isn't known
  std::vector<Change> changes;
};

// Those starts of run.json, after the first, whose iterations are still there: what a later start
// has trained anew isn't. Changes are against the start that has trained what lies before.
std::vector<Resumption> resumptions_of(const ReportedRun&);

// When the run was first started, or its first iteration began; seconds since 1970. The run has
// iterations.
double begin_of(const ReportedRun&);

}  // namespace trident
