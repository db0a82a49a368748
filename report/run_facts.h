// The facts of a run in words: the table at the top of its report.
#pragma once

#include <cmath>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "report/run_report.h"

namespace trident {

// [name, text] pairs: model, data and settings; results; times; speed; machine.
nlohmann::ordered_json facts_of(const ReportedRun&);

inline std::size_t pipeline_ranks(const std::vector<IterationMetrics>& history) {
  return history.empty() ? 0 : history.back().rank_bubble_ratio.size();
}

// The mean over iterations, without the first iteration, which still makes its buffers, and without
// values that are not finite. `weight`: the weight of each iteration.
template <class Value, class Weight>
std::optional<double> mean_of(const std::vector<IterationMetrics>& history, Value value,
                              Weight weight) {
  double sum = 0, all = 0;
  for (const IterationMetrics& m : history) {
    if (m.iteration == 1 && history.size() > 1) continue;
    const double one = value(m), counts = weight(m);
    if (!std::isfinite(one) || !(counts > 0) || !std::isfinite(counts)) continue;
    sum += counts * one;
    all += counts;
  }
  if (all == 0) return std::nullopt;
  return sum / all;
}

}  // namespace trident
