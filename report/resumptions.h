// The resumptions of a run, which its curves mark.
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
  std::string layout;      // "" if it isn't known
  std::vector<Change> changes;
};

// The starts in run.json after the first one, if their iterations still exist: a later start may
// have trained these iterations again. Changes are relative to the start that has trained the
// iterations before.
std::vector<Resumption> resumptions_of(const ReportedRun&);

// The time of the first start of the run or, if unknown, the begin of its first iteration; seconds
// since 1970. The run must have iterations.
double begin_of(const ReportedRun&);

}  // namespace trident
