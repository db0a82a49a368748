#include "run/measurement/timed_stages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "scheduler/schedules.h"

namespace trident {
namespace {

constexpr double late = 0.2;  // the error of a clock or a sleep in milliseconds

double length_of(const Action& action, const StageTimes& times) {
  double length = 0.0;
  if (action.kind == Kind::forward) length = times.forward[action.stage];
  if (action.kind != Kind::forward && action.kind != Kind::backward_weight) {
    length += times.backward_input[action.stage];
  }
  if (action.kind == Kind::backward || action.kind == Kind::backward_weight) {
    length += times.backward_weight[action.stage];
  }
  return length;
}

// Checks causality, without simulated times: no action ends before its inputs have been computed
// and sent and its own time has passed.
void expect_causal(const Schedule& s, const Simulation& run, const StageTimes& times,
                   double transfer) {
  const auto end_of = [&](bool forward, int stage, int microbatch) {
    const int rank = s.rank_of_stage(stage);
    const auto& list = s.ranks[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      const bool is_forward = list[i].kind == Kind::forward;
      if (list[i].stage != stage || list[i].microbatch != microbatch || is_forward != forward ||
          list[i].kind == Kind::backward_weight) {
        continue;
      }
      return run.actions[rank][i].end;
    }
    ADD_FAILURE();
    return 0.0;
  };
  for (int rank = 0; rank < s.stages; ++rank) {
    double busy = 0.0;
    for (size_t i = 0; i < s.ranks[rank].size(); ++i) {
      const Action& a = s.ranks[rank][i];
      busy += length_of(a, times);
      const bool forward = a.kind == Kind::forward;
      const int source = a.stage + (forward ? -1 : 1);
      double earliest = busy;
      if (a.kind != Kind::backward_weight && source >= 0 && source < s.total_stages()) {
        earliest = std::max(earliest, end_of(forward, source, a.microbatch) +
                                          (s.rank_of_stage(source) == rank ? 0.0 : transfer) +
                                          length_of(a, times));
      }
      EXPECT_GE(run.actions[rank][i].end, earliest - late) << to_string(a);
    }
  }
}

TEST(TimedStages, EveryKindRunsOverRealRanksAndComesNearItsSimulation) {
  for (const std::string& kind : names_of(schedule_registry())) {
    SCOPED_TRACE(kind);
    const Schedule schedule = make_schedule({.kind = kind, .stages = 4, .microbatches = 8});
    const StageTimes times = stage_times(schedule, {{5}, {6}, {5}});
    const Bubble predicted = simulate(schedule, times, 1.0).bubble;
    double difference = 1.0;
    // Other programs on the machine only increase the difference.
    for (int attempt = 0; attempt < 25 && difference > 0.02; ++attempt) {
      const Simulation run = run_timed_local(schedule, times, 1.0, 5);
      if (schedule.updates == Updates::at_flush && kind != "dualpipev") {
        expect_causal(schedule, run, times, 1.0);
      }
      EXPECT_GT(run.bubble.makespan, predicted.makespan - late);
      difference = std::min(difference, std::abs(run.bubble.ratio - predicted.ratio));
    }
    EXPECT_LT(difference, 0.02);
  }
}

TEST(TimedStages, UnequalStagesAreTimedByTheirOwnTimes) {
  const Schedule schedule = make_schedule({.kind = "1f1b", .stages = 3, .microbatches = 3});
  const StageTimes times = stage_times(schedule, {{1, 8, 2}, {3, 1, 1}, {1, 1, 6}});
  expect_causal(schedule, run_timed_local(schedule, times, 4.0, 3), times, 4.0);
}

TEST(TimedStages, AWorldOfAnotherSizeIsRefused) {
  const Schedule schedule = make_schedule({.kind = "1f1b", .stages = 3, .microbatches = 3});
  EXPECT_THROW(run_local(2, {},
                         [&](Transport& transport) {
                           run_timed(schedule, stage_times(schedule, {}), 0, transport);
                         }),
               RequestError);
}

}  // namespace
}  // namespace trident
