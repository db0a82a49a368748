#include "scheduler/bubble.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trident {

namespace {

constexpr double second = 1e-9;  // of nanoseconds

void check_same(const Schedule& schedule, const std::vector<ExecutionTrace>& traces) {
  if (std::ssize(traces) != schedule.stages) {
    throw Error(fmt::format("bubble: got traces of {} ranks, the schedule has {}", traces.size(),
                            schedule.stages));
  }
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const std::vector<Action> ran = compute_actions(traces[rank]);
    const std::vector<Action>& listed = schedule.ranks[rank];
    const auto [a, b] = std::mismatch(ran.begin(), ran.end(), listed.begin(), listed.end());
    if (a == ran.end() && b == listed.end()) continue;
    throw Error(fmt::format("bubble: rank {} position {} ran {}, the schedule {} has {}", rank,
                            a - ran.begin(), a == ran.end() ? "nothing" : to_string(*a),
                            schedule.kind, b == listed.end() ? "nothing" : to_string(*b)));
  }
}

}  // namespace

MeasuredBubble measure_bubble(const Schedule& schedule, const std::vector<ExecutionTrace>& traces) {
  check_same(schedule, traces);
  int64_t zero = INT64_MAX;  // kept apart, so that doubles stay exact
  for (const auto& trace : traces) {
    if (!trace.events.empty()) zero = std::min(zero, trace.events.front().begin.wall_ns);
  }
  std::vector<std::vector<TimedAction>> wall(traces.size());
  std::vector<std::vector<double>> cpu(traces.size());
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    for (const auto& [action, begin, end] : traces[rank].events) {
      if (action.step != Step::compute) continue;
      wall[rank].push_back({second * static_cast<double>(begin.wall_ns - zero),
                            second * static_cast<double>(end.wall_ns - zero)});
      cpu[rank].push_back(second * static_cast<double>(end.cpu_ns - begin.cpu_ns));
    }
  }
  return {replay(schedule, cpu).bubble, bubble_of(schedule, wall)};
}

}  // namespace trident
