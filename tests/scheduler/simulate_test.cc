#include "scheduler/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "base/error.h"
#include "scheduler/analytic.h"
#include "scheduler/bubble.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"
#include "tests/scheduler/sizes.h"

namespace trident {
namespace {

double work(const Schedule& schedule, const ShareTimes& t) {
  return schedule.microbatches * (t.forward[0] + t.backward_input[0] + t.backward_weight[0]);
}

TEST(Simulate, TheBubbleIsTheAnalyticOne) {
  std::map<std::string, int> compared;
  for (const ScheduleRequest& request : small_requests()) {
    for (const UniformTimes& t : {UniformTimes{1, 1, 1}, UniformTimes{2, 0.5, 1},
                                  UniformTimes{1, 3, 2}, UniformTimes{1, 1.2, 0.9}}) {
      const AnalyticBubble analytic = analytic_bubble(request, t);
      SCOPED_TRACE(fmt::format("{} p={} m={} v={} F={} B={} W={}", request.kind, request.stages,
                               request.microbatches, request.chunks, t.forward, t.backward_input,
                               t.backward_weight));
      const Schedule schedule = make_schedule(request);
      if (schedule.asynchronous()) continue;  // its formula is the limit of long runs
      const ShareTimes times{{t.forward}, {t.backward_input}, {t.backward_weight}};
      const Bubble bubble = simulate(schedule, stage_times(schedule, times)).bubble;
      if (analytic.bubble_ratio) {
        ++compared[request.kind];
        if (request.kind == "zb_h1" && t.forward > t.backward_input) {  // analytic.h
          EXPECT_LE(bubble.ratio, *analytic.bubble_ratio + 1e-12);
          continue;
        }
        EXPECT_NEAR(bubble.ratio, *analytic.bubble_ratio, 1e-12);
        for (double ratio : bubble.rank_ratio) EXPECT_NEAR(ratio, *analytic.bubble_ratio, 1e-12);
        EXPECT_NEAR(bubble.makespan * (1 - *analytic.bubble_ratio), work(schedule, times), 1e-9);
      }
      if (analytic.bubble_ratio_span) {
        ++compared[request.kind];
        EXPECT_NEAR(bubble.ratio_span, *analytic.bubble_ratio_span, 1e-12);
      }
    }
  }
  for (const char* kind :
       {"naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "zbv"}) {
    EXPECT_GT(compared[kind], 30) << kind;
  }
}

// Between its first and its last update, rank r lacks only its first p-1-r forwards.
TEST(Simulate, AsynchronousBubblesCountBetweenUpdatesOnly) {
  for (const char* kind : {"pipedream", "pipedream_2bw"}) {
    for (const auto& [p, m] : {std::pair{2, 3}, {4, 8}, {4, 64}, {8, 1000}}) {
      const Schedule schedule = make_schedule({kind, p, m});
      const double f = 1, b = 2, w = 0.5;
      const Bubble bubble = simulate(schedule, stage_times(schedule, {{f}, {b}, {w}})).bubble;
      EXPECT_NEAR(bubble.longest_span, (m - 1) * (f + b + w), 1e-9);
      for (int r = 0; r < p; ++r) {
        EXPECT_NEAR(bubble.rank_ratio_span[r], (p - 1 - r) * f / bubble.longest_span, 1e-12);
      }
      EXPECT_LT(bubble.ratio, (p - 1) * (f + b + w) / ((m - 1) * (f + b + w)));
      EXPECT_NEAR(bubble.makespan, (m + p - 1) * (f + b + w), 1e-9);
      EXPECT_EQ(analytic_bubble({kind, p, m}).bubble_ratio, 0.0);
    }
  }
}

TEST(Simulate, WeightVersionsAreTheStashesOfEachRank) {
  EXPECT_EQ(weight_versions(make_schedule({"pipedream", 4, 12})), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(weight_versions(make_schedule({"pipedream", 4, 2})), (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(weight_versions(make_schedule({"pipedream_2bw", 3, 6})), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(weight_versions(make_schedule({"zbv", 3, 6})), (std::vector<int>{1, 1, 1}));
}

TEST(Simulate, NoFormulaForInterleavedGroupsOtherThanP) {
  EXPECT_FALSE(analytic_bubble({"interleaved_1f1b", 4, 6, 2, 0}).bubble_ratio);
  EXPECT_DOUBLE_EQ(*analytic_bubble({"interleaved_1f1b", 4, 8, 2, 0}).bubble_ratio, 3.0 / 19.0);
}

// The makespan of 1F1B with transfers of C, where C is small against the share F+B+W of a rank, p >
// 1, and p divides m.
double one_f_one_b_makespan(double p, double m, double share, double c) {
  return (m + p - 1) * share + c * (2 * (p - 1) * (m / p + 1) - 2);
}

TEST(Simulate, TransfersLengthenOneFOneBByTheFormula) {
  for (int p = 2; p <= 8; ++p) {
    for (int groups = 1; groups <= 4; ++groups) {
      const Schedule schedule = one_f_one_b(p, p * groups);
      const double c = 0.01;
      EXPECT_NEAR(simulate(schedule, stage_times(schedule, {{1}, {2}, {0.5}}), c).bubble.makespan,
                  one_f_one_b_makespan(p, p * groups, 1 + 2 + 0.5, c), 1e-9)
          << p << " " << groups;
    }
  }
}

// Qi et al. 2023, "Zero Bubble Pipeline Parallelism": the 1F1B column of their simulator.
TEST(Simulate, AgreesWithThePublishedOneFOneBRates) {
  const Schedule small = one_f_one_b(8, 24), large = one_f_one_b(16, 48);
  EXPECT_NEAR(simulate(small, stage_times(small, {{18522}, {18086}, {9337}}), 601).bubble.ratio,
              0.2431, 5e-5);
  EXPECT_NEAR(simulate(large, stage_times(large, {{11347}, {11248}, {8132}}), 377).bubble.ratio,
              0.2552, 5e-5);
}

TEST(Simulate, EveryActionStartsAsSoonAsItsRankAndItsInputAllow) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(0.1, 2.0);
  const auto requests = small_requests();
  for (int round = 0; round < 200; ++round) {
    const Schedule schedule = make_schedule(requests[random() % requests.size()]);
    const double c = round % 2 ? uniform(random) : 0.0;
    std::vector<std::vector<double>> durations;
    for (const auto& actions : schedule.ranks) {
      auto& own = durations.emplace_back();
      for (size_t i = 0; i < actions.size(); ++i) own.push_back(uniform(random));
    }
    const Simulation result = replay(schedule, durations, c);
    // The time at which a stage's output, or the gradient of its input, is available to other
    // stages.
    const auto made = [&](bool forward, int stage, int microbatch) {
      const int rank = schedule.rank_of_stage(stage);
      const auto& list = schedule.ranks[rank];
      const auto at = std::find_if(list.begin(), list.end(), [&](const Action& a) {
        return a.stage == stage && a.microbatch == microbatch &&
               (forward ? a.kind == Kind::forward
                        : a.kind == Kind::backward || a.kind == Kind::backward_input);
      });
      return result.actions[rank][at - list.begin() + (at->fused ? 1 : 0)].end;
    };
    for (int rank = 0; rank < schedule.stages; ++rank) {
      const auto& list = schedule.ranks[rank];
      const auto input = [&](const Action& action) {
        const bool forward = action.kind == Kind::forward;
        const int source = action.stage + (forward ? -1 : 1);
        if (action.kind == Kind::backward_weight || source < 0 ||
            source >= schedule.total_stages()) {
          return 0.0;
        }
        return made(forward, source, action.microbatch) +
               (schedule.rank_of_stage(source) == rank ? 0.0 : c);
      };
      double busy_until = 0.0;
      for (size_t i = 0; i < list.size(); ++i) {
        double expected = busy_until;
        const bool second = i > 0 && list[i - 1].fused;  // the pair has begun already
        if (!second) expected = std::max(expected, input(list[i]));
        if (list[i].fused) expected = std::max(expected, input(list[i + 1]));
        EXPECT_DOUBLE_EQ(result.actions[rank][i].start, expected);
        busy_until = result.actions[rank][i].end;
        EXPECT_DOUBLE_EQ(busy_until, expected + durations[rank][i]);
      }
    }
  }
}

TEST(Simulate, UnequalStagesWeightGradientsAndSpans) {
  // Rank 0 runs F 2, B 4 (0 to 2, 5 to 9), rank 1 F 1, I 1 and W 3 (2 to 3, 3 to 4, 4 to 7).
  const Schedule schedule{
      "own",
      2,
      1,
      1,
      {{0}, {1}},
      {{{Kind::forward, 0, 0}, {Kind::backward, 0, 0}},
       {{Kind::forward, 1, 0}, {Kind::backward_input, 1, 0}, {Kind::backward_weight, 1, 0}}}};
  validate(schedule);
  const StageTimes times = stage_times(schedule, {{2, 1}, {2.5, 1}, {1.5, 3}});
  const Simulation result = simulate(schedule, times, 0.0);
  EXPECT_DOUBLE_EQ(result.actions[0][1].start, 4.0);
  EXPECT_DOUBLE_EQ(result.bubble.makespan, 8.0);
  EXPECT_DOUBLE_EQ(result.bubble.rank_ratio[0], 2.0 / 8.0);
  EXPECT_DOUBLE_EQ(result.bubble.rank_ratio[1], 3.0 / 8.0);
  EXPECT_EQ(peak_in_flight(schedule), (std::vector<double>{1.0, 1.0}));
}

TEST(Simulate, SpanIsTheLongestFromARanksFirstActionToItsLast) {
  const Bubble bubble = bubble_of(Schedule{}, {{{0, 2}, {3, 5}}, {{4, 8}}});
  EXPECT_DOUBLE_EQ(bubble.makespan, 8.0);
  EXPECT_DOUBLE_EQ(bubble.longest_span, 5.0);
  EXPECT_DOUBLE_EQ(bubble.ratio, 0.5);
  EXPECT_DOUBLE_EQ(bubble.rank_ratio_span[1], 0.2);
  EXPECT_DOUBLE_EQ(bubble.ratio_span, 0.2);
}

TEST(Simulate, RoundingGivesABusyRankNoIdleTime) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> seconds(0, 1);
  for (int run = 0; run < 100; ++run) {
    std::vector<TimedAction> busy;  // one after the other
    for (double end = seconds(random); busy.size() < 10;) {
      const double start = end;
      end += seconds(random);
      busy.push_back({start, end});
    }
    const Bubble bubble = bubble_of(Schedule{}, {busy});
    EXPECT_FALSE(std::signbit(bubble.ratio) || std::signbit(bubble.ratio_span)) << bubble.ratio;
  }
}

TEST(Simulate, AChunkTakesItsPartOfTheShare) {
  const Schedule schedule = interleaved_one_f_one_b(2, 2, 2);
  const StageTimes times = stage_times(schedule, {{3, 4}, {1}, {2}});
  EXPECT_EQ(times.forward, (std::vector<double>{1.5, 2, 1.5, 2}));
  EXPECT_EQ(times.backward_weight, (std::vector<double>{1, 1, 1, 1}));
  EXPECT_THROW(stage_times(schedule, {{1, 2, 3}, {1}, {1}}), RequestError);
  EXPECT_THROW(stage_times(schedule, {{1}, {-1}, {1}}), RequestError);
}

TEST(Simulate, ADeadlockIsAnErrorNotAHang) {
  Schedule schedule = one_f_one_b(2, 1);
  std::swap(schedule.ranks[0][0], schedule.ranks[0][1]);
  EXPECT_THROW(simulate(schedule, stage_times(schedule, {})), Error);
}

TEST(Simulate, TwoMillionActionsFinish) {
  const ScheduleRequest request{"interleaved_1f1b", 64, 4096, 4, 0};
  const Schedule schedule = make_schedule(request);
  validate(schedule);
  EXPECT_NEAR(simulate(schedule, stage_times(schedule, {})).bubble.ratio,
              *analytic_bubble(request).bubble_ratio, 1e-9);
}

// A trace in which each action took the given CPU time, and other wall times.
ExecutionTrace trace_of(const std::vector<LoweredAction>& list, int64_t cpu_ns, int64_t wall_ns,
                        int64_t zero_ns) {
  ExecutionTrace trace;
  ClockReading now{zero_ns, 12345};
  for (const LoweredAction& action : list) {
    const ClockReading begin = now;
    now.wall_ns += wall_ns;
    now.cpu_ns += action.step == Step::compute ? cpu_ns : 7;  // transfers are not replayed
    trace.events.push_back({action, begin, now});
  }
  return trace;
}

TEST(Bubble, IsReplayedFromCpuTimesAndReadFromWallTimes) {
  const Schedule schedule = one_f_one_b(3, 4);
  const auto lists = lower(schedule);
  std::vector<ExecutionTrace> traces;
  for (int rank = 0; rank < 3; ++rank) {
    traces.push_back(trace_of(lists[rank], 1'000'000, 5'000'000, 1'000'000'000'000'000'000));
  }
  const MeasuredBubble measured = measure_bubble(schedule, traces);
  // F = B + W = 1 ms: fraction (p-1)/(m+p-1).
  EXPECT_NEAR(measured.replayed.ratio, 2.0 / 6.0, 1e-12);
  EXPECT_NEAR(measured.replayed.makespan, 12e-3, 1e-12);
  // Rank 1 has 8 computes, 8 posted receives, 8 waits for them, and 8 sends.
  ASSERT_EQ(lists[1].size(), 8u + 16u + 8u);
  size_t longest = 0, first = SIZE_MAX;
  for (const auto& list : lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].step != Step::compute) continue;
      longest = std::max(longest, i + 1);
      first = std::min(first, i);
    }
  }
  const double makespan = 5e-3 * static_cast<double>(longest - first);
  EXPECT_NEAR(measured.wall.makespan, makespan, 1e-12);
  EXPECT_NEAR(measured.wall.rank_ratio[1], 1 - 8 * 5e-3 / makespan, 1e-12);
}

TEST(Bubble, ATraceThatIsNotTheListIsAnError) {
  const Schedule schedule = one_f_one_b(2, 2);
  const auto lists = lower(schedule);
  std::vector<ExecutionTrace> traces = {trace_of(lists[0], 1, 1, 0), trace_of(lists[1], 1, 1, 0)};
  traces[1].events.pop_back();
  traces[1].events.pop_back();
  try {
    measure_bubble(schedule, traces);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "bubble: rank 1 position 3 ran nothing, the schedule 1f1b has 1B1");
  }
}

}  // namespace
}  // namespace trident
