#include "report/resumptions.h"

#include <algorithm>
#include <string_view>

namespace trident {
namespace {

std::string fact_of(const RunStart& start, std::string_view name) {
  for (const auto& [key, value] : start.facts) {
    if (key == name) return value;
  }
  return "";
}

// The changes that affect the speed of iterations or their bits.
std::vector<Resumption::Change> changes_of(const RunStart& now, const RunStart& before) {
  std::vector<Resumption::Change> changes;
  for (const char* name : {"layout", "machine", "device", "threads", "version"}) {
    const std::string one = fact_of(now, name), other = fact_of(before, name);
    if (one != other && !one.empty() && !other.empty()) changes.push_back({name, one, other});
  }
  return changes;
}

}  // namespace

std::vector<Resumption> resumptions_of(const ReportedRun& run) {
  // From the last start back: a start is dropped if a later start resumed at or before its own
  // first iteration.
  std::vector<const RunStart*> kept;
  for (auto start = run.about.starts.rbegin(); start != run.about.starts.rend(); ++start) {
    if (kept.empty() || start->after < kept.back()->after) kept.push_back(&*start);
  }
  std::reverse(kept.begin(), kept.end());
  std::vector<Resumption> list;
  for (std::size_t i = 1; i < kept.size(); ++i) {
    const RunStart& start = *kept[i];
    list.push_back({.after = start.after,
                    .seconds = start.time - begin_of(run),
                    .layout = fact_of(start, "layout"),
                    .changes = changes_of(start, *kept[i - 1])});
  }
  return list;
}

double begin_of(const ReportedRun& run) {
  const IterationMetrics& first = run.history.front();
  const double iteration = first.wall_time - 1e-3 * first.iteration_time_ms;
  const double start = run.about.starts.empty() ? 0 : run.about.starts.front().time;
  return start > 0 && start < iteration ? start : iteration;
}

}  // namespace trident
