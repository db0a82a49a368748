#include "planner/machine/fitted_link.h"

#include <algorithm>

#include "base/median.h"

namespace trident {

Machine::Link fitted_link(const std::vector<TimedAllReduce>& times, int ranks) {
  // A ring of n members takes 2 (n - 1) hops and sends 2 (n - 1) / n of the message over each link.
  const double hops = 2.0 * (ranks - 1), sent = hops / ranks;
  const double first = times.front().seconds;
  std::vector<double> rates;
  for (const TimedAllReduce& one : times) {
    // Less than this part of the smallest message's time shows nothing of the bandwidth.
    constexpr double visible = 0.2;
    const double transfer = one.seconds - first;
    if (transfer > visible * first) rates.push_back(sent * one.bytes / transfer);
  }
  if (rates.empty()) {
    const TimedAllReduce& last = times.back();
    return {sent * last.bytes / std::max(last.seconds, 1e-9), first / hops};
  }
  return {median(rates), first / hops};
}

}  // namespace trident
