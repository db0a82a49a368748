// What a run's report says in words: the table at its top.
#pragma once

#include <cmath>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "training/report/run_report.h"

namespace trident {

// [name, text] pairs: what was trained and how, what came of it, when, how fast, on what.
nlohmann::ordered_json facts_of(const ReportedRun&);

inline std::size_t pipeline_ranks(const std::vector<IterationMetrics>& history) {
  return history.empty() ? 0 : history.back().rank_bubble_ratio.size();
}

// The mean without the first iteration, which still makes its buffers, and what isn't finite.
template <class Value>
std::optional<double> mean_of(const std::vector<IterationMetrics>& history, Value value) {
  double sum = 0;
  std::size_t count = 0;
  for (const IterationMetrics& m : history) {
    if (m.iteration == 1 && history.size() > 1) continue;
    const double one = value(m);
    if (!std::isfinite(one)) continue;
    sum += one;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace trident
