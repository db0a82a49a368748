#include "engine/monitor.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

constexpr int iterations = 4;

Overrides layout_of(const ScheduleConstraints& kind) {
  const bool v = kind.chunks != ChunkRule::one;
  return overrides_of({1, 1, 2, v ? 2 : 1}) +
         Overrides{"pipeline.schedule=" + kind.name,
                   "model.num_layers=4",
                   "model.tie_word_embeddings=false",
                   "batch.micro_batch_size=1",
                   "batch.global_batch_size=4",
                   "gradient_clipping=0",
                   "runtime.threads_per_rank=1",
                   "scheduler={\"type\": \"constant\"}",
                   "training.train_iters=" + std::to_string(iterations)};
}

// Compares the sum of each step's parts with the ranks' mean time by their own clocks.
void expect_parts_of(const Config& config) {
  std::mutex mutex;
  std::vector<double> taken(iterations), parts(iterations);
  std::vector<StepFigures> reported(iterations);
  on_ranks(config, transport_options(config), [&](Rank& own) {
    Monitor monitor(own.stepper, own.model.topology().world.duplicate("monitor"));
    const auto m = config.num_microbatches();
    for (int k = 0; k < iterations; ++k) {
      const auto at = static_cast<std::size_t>(k);
      auto batches = synthetic_batches(own.model, k);
      for (int i = 0; i < own.stepper.look_ahead(); ++i) {
        batches.push_back(
            synthetic_batches(own.model, k + 1 + i / m)[static_cast<std::size_t>(i % m)]);
      }
      monitor.begin();
      own.stepper.advance(batches, {.learning_rate = 1e-3, .close = k % 2 == 1});
      monitor.end();
      const StepClock& clock = own.stepper.clock();
      {
        const std::lock_guard lock(mutex);
        taken[at] += 1e-6 * static_cast<double>(clock.end.wall_ns - clock.begin.wall_ns) / 2;
      }
      const StepFigures figures = monitor.collect();
      if (own.model.topology().world.rank() == 0) reported[at] = figures;
    }
    own.stepper.wait_for_result();
  });
  for (int k = 0; k < iterations; ++k) {
    const auto at = static_cast<std::size_t>(k);
    double sum = 0;
    for (const auto& [name, ms] : reported[at].parts_ms) {
      EXPECT_GE(ms, 0) << name;
      sum += ms;
    }
    EXPECT_EQ(reported[at].parts_ms.size(), 4U);
    EXPECT_NEAR(sum / taken[at], 1, 1e-6) << "iteration " << k + 1;
    // An asynchronous schedule's iterations overlap, so they have no step of their own to replay.
    EXPECT_EQ(reported[at].replayed_ms.has_value(), !schedule_of(config).asynchronous());
  }
}

TEST(Monitor, PartsAddUpToTheStepUnderEverySchedule) {
  const TempDir dir;
  for (const ScheduleConstraints& kind : built_in_constraints()->schedules) {
    SCOPED_TRACE(kind.name);
    expect_parts_of(seeded_config("llama", dir.path(), layout_of(kind)));
  }
}

}  // namespace
}  // namespace trident::testing
