// The actions that a pipeline really ran, and their duration compared with the list's prediction.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/setup/from_config.h"
#include "scheduler/lower.h"
#include "scheduler/schedules.h"
#include "scheduler/simulate.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

std::vector<LoweredAction> actions_of(const ExecutionTrace& trace) {
  std::vector<LoweredAction> actions;
  for (const TracedAction& event : trace.events) actions.push_back(event.action);
  return actions;
}

TEST(Executed, TraceIsTheListOfTheScheduleAskedForOnEveryRank) {
  for (const std::string& kind : names_of(schedule_registry())) {
    for (const int stages : {2, 4}) {
      SCOPED_TRACE(kind + " on " + std::to_string(stages));
      const int chunks = std::max(1, complete({kind, stages, 12}).chunks);
      if (kind.starts_with("pipedream")) continue;
      const TempDir dir;
      const Config config =
          seeded_config("gpt2", dir.path(),
                        overrides_of({1, 1, stages, chunks}) +
                            Overrides{"pipeline.schedule=" + kind, "model.num_layers=8"});
      const Schedule schedule = schedule_of(config);
      EXPECT_EQ(schedule.kind, kind);
      const auto lists = lower(schedule);
      std::vector<std::vector<LoweredAction>> ran(static_cast<std::size_t>(stages));
      std::vector<std::vector<Action>> computed(ran.size());
      on_ranks(config, transport_options(config), [&](Rank& own) {
        for (int k = 0; k < 2; ++k) own.stepper.train(synthetic_batches(own.model, k), 1e-3);
        const auto rank = static_cast<std::size_t>(own.model.topology().of(Group::pipeline).rank());
        ran[rank] = actions_of(own.stepper.trace());
        computed[rank] = compute_actions(own.stepper.trace());
      });
      for (std::size_t rank = 0; rank < ran.size(); ++rank) {
        EXPECT_TRUE(ran[rank] == lists[rank]) << "rank " << rank;
        EXPECT_TRUE(computed[rank] == schedule.ranks[rank]) << "rank " << rank;
      }
    }
  }
}

struct StepTimes {
  double measured = 0;   // seconds from the first compute action to the end of the last
  double predicted = 0;  // the list's, with these actions' durations and the latency
};

StepTimes times_of(const Schedule& schedule, const std::vector<ExecutionTrace>& traces,
                   double latency) {
  std::vector<std::vector<double>> durations(traces.size());
  std::int64_t begin = INT64_MAX, end = 0;
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    for (const TracedAction& event : traces[rank].events) {
      if (event.action.step != Step::compute) continue;
      durations[rank].push_back(static_cast<double>(event.end.wall_ns - event.begin.wall_ns) *
                                1e-9);
      begin = std::min(begin, event.begin.wall_ns);
      end = std::max(end, event.end.wall_ns);
    }
  }
  return {static_cast<double>(end - begin) * 1e-9,
          replay(schedule, durations, latency).bubble.makespan};
}

// Expects that each forward of rank 1 begins at least `latency_ns` after the end of the forward on
// rank 0 that feeds it, and likewise for backwards: the injected delay took effect.
void expect_late(const std::vector<ExecutionTrace>& traces, std::int64_t latency_ns) {
  const auto find = [&](std::size_t rank, Kind kind, int microbatch) {
    for (const TracedAction& event : traces[rank].events) {
      const LoweredAction& a = event.action;
      if (a.step == Step::compute && a.kind == kind && a.microbatch == microbatch) return event;
    }
    ADD_FAILURE() << "rank " << rank << " did not run micro-batch " << microbatch;
    return TracedAction{};
  };
  for (int i = 0; i < 8; ++i) {
    EXPECT_GE(find(1, Kind::forward, i).begin.wall_ns,
              find(0, Kind::forward, i).end.wall_ns + latency_ns);
    EXPECT_GE(find(0, Kind::backward, i).begin.wall_ns,
              find(1, Kind::backward, i).end.wall_ns + latency_ns);
  }
}

// Median of measured over predicted time of a few steps with 20 ms on every transfer.
double step_over_list(const std::string& kind) {
  const TempDir dir;
  const Config config =
      seeded_config("gpt2", dir.path(),
                    overrides_of({1, 1, 2}) +
                        Overrides{"model.hidden_size=256", "model.ffn_hidden_size=1024",
                                  "model.max_position_embeddings=128", "data.sequence_length=128",
                                  "batch.micro_batch_size=2", "batch.global_batch_size=16",
                                  "runtime.threads_per_rank=1", "pipeline.schedule=" + kind});
  TransportOptions options = transport_options(config);
  options.injected_latency = std::chrono::milliseconds(20);
  constexpr int steps = 5;
  std::vector<std::vector<ExecutionTrace>> traces(steps, std::vector<ExecutionTrace>(2));
  Schedule schedule;
  on_ranks(config, options, [&](Rank& own) {
    own.stepper.train(synthetic_batches(own.model, 0), 1e-3);  // allocates its buffers
    for (int k = 0; k < steps; ++k) {
      own.stepper.train(synthetic_batches(own.model, k), 1e-3);
      traces[static_cast<std::size_t>(k)]
            [static_cast<std::size_t>(own.model.topology().of(Group::pipeline).rank())] =
                own.stepper.trace();
    }
    if (own.model.topology().of(Group::pipeline).rank() == 0) schedule = own.stepper.schedule();
  });
  std::vector<double> ratios;
  for (const auto& step : traces) {
    const StepTimes times = times_of(schedule, step, 20e-3);
    ratios.push_back(times.measured / times.predicted);
    expect_late(step, 20'000'000);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[steps / 2];
}

// Transfers cost no more than the list predicts. GPipe hides nearly all of them behind compute, so
// a blocking sender shows there. With two ranks, 1F1B waits for the round trip anyway.
TEST(Executed, TransfersOverlapWithComputeWithinFivePercentOfTheList) {
  for (const std::string kind : {"gpipe", "1f1b"}) {
    double ratio = 2;
    for (int attempt = 0; attempt < 5 && ratio >= 1.05; ++attempt) {  // other programs may run
      ratio = step_over_list(kind);
      EXPECT_GT(ratio, 0.99) << kind;
    }
    RecordProperty(kind, std::to_string(ratio));
    EXPECT_LT(ratio, 1.05) << kind << ": step time over the list's makespan, best of five medians";
  }
}

}  // namespace
}  // namespace trident::testing
