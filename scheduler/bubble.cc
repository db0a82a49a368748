#include "scheduler/bubble.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace trident {

namespace {

constexpr double second = 1e-9;  // seconds in a nanosecond

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

// The mean time of each stage's actions. For a stage without split backwards, a full backward
// counts as input gradient only, so that the sum is right in either case.
StageTimes mean_times(const Schedule& schedule, const std::vector<std::vector<double>>& durations) {
  const auto stages = static_cast<size_t>(schedule.total_stages());
  std::vector<std::array<double, 4>> sum(stages), count(stages);  // [stage][kind]
  for (size_t rank = 0; rank < durations.size(); ++rank) {
    for (size_t i = 0; i < durations[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      sum[action.stage][static_cast<size_t>(action.kind)] += durations[rank][i];
      count[action.stage][static_cast<size_t>(action.kind)] += 1;
    }
  }
  StageTimes times;
  for (size_t stage = 0; stage < stages; ++stage) {
    const auto mean = [&](Kind kind) {
      const double n = count[stage][static_cast<size_t>(kind)];
      return n > 0 ? sum[stage][static_cast<size_t>(kind)] / n : 0.0;
    };
    const bool split = count[stage][static_cast<size_t>(Kind::backward_weight)] > 0;
    times.forward.push_back(mean(Kind::forward));
    times.backward_input.push_back(mean(split ? Kind::backward_input : Kind::backward));
    times.backward_weight.push_back(split ? mean(Kind::backward_weight) : 0.0);
  }
  return times;
}

}  // namespace

MeasuredBubble measure_bubble(const Schedule& schedule, const std::vector<ExecutionTrace>& traces) {
  check_same(schedule, traces);
  int64_t zero = INT64_MAX;  // subtracted as integers, so that doubles stay exact
  for (const auto& trace : traces) {
    if (!trace.events.empty()) zero = std::min(zero, trace.events.front().begin.wall_ns);
  }
  std::vector<std::vector<TimedAction>> wall(traces.size());
  std::vector<std::vector<double>> cpu(traces.size());
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    for (const auto& [action, begin, end, memory] : traces[rank].events) {
      if (action.step != Step::compute) continue;
      wall[rank].push_back({second * static_cast<double>(begin.wall_ns - zero),
                            second * static_cast<double>(end.wall_ns - zero)});
      cpu[rank].push_back(second * static_cast<double>(end.cpu_ns - begin.cpu_ns));
    }
  }
  return {replay(schedule, cpu).bubble, bubble_of(schedule, wall),
          simulate(schedule, mean_times(schedule, cpu))};
}

}  // namespace trident
