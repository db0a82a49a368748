// The time of gradient reductions without overlap: after the last backward, so that no stage of a
// pipeline waits for another stage's reduction. Also the memory that this takes.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "engine/setup/from_config.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/topology.h"
#include "planner/plan/planned_rank.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

Config config_of(const TempDir& dir, const Overrides& overrides) {
  return seeded_config("llama", dir.path(), overrides_of({2, 1, 4}) + overrides);
}

Overrides zero(int stage, bool each, bool overlap) {
  const auto text = [](bool value) { return value ? "true" : "false"; };
  return {"zero_optimization.stage=" + std::to_string(stage),
          std::string("zero_optimization.reduce_each_micro_batch=") + text(each),
          std::string("zero_optimization.overlap_comm=") + text(overlap),
          "zero_optimization.reduce_bucket_size=2000",
          "zero_optimization.stage3_param_persistence_threshold=0"};
}

Overrides micro_batches(int count) {
  return {"batch.micro_batch_size=1", "batch.gradient_accumulation_steps=" + std::to_string(count),
          "batch.global_batch_size=" + std::to_string(2 * count)};
}

struct Reductions {
  int in_actions = 0, after = 0;
};

Reductions reductions(const Config& config, int place) {
  const RankPlanner planner(config, *architecture_of(config), schedule_of(config));
  const TracedStep step = planner.trace(place);
  Reductions found;
  for (const TracedOperation& one : step.trace.operations()) {
    if (one.group < 0) continue;
    const auto& group = step.trace.groups()[static_cast<std::size_t>(one.group)];
    const auto operation = static_cast<Operation>(one.operation);
    if (traffic_of(group.name) != "data" ||
        (operation != Operation::all_reduce && operation != Operation::reduce_scatter)) {
      continue;
    }
    ++(one.action < 0 ? found.after : found.in_actions);
  }
  return found;
}

TEST(ReductionOrder, NoStageReducesBeforeItsLastGradientIsHandedOn) {
  const TempDir dir;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {false, true}) {
      const Config config =
          config_of(dir, zero(stage, false, overlap) + micro_batches(stage < 2 ? 1 : 8));
      for (int place = 0; place < 4; ++place) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", place " + std::to_string(place) +
                     (overlap ? ", overlapping" : ""));
        const Reductions found = reductions(config, place);
        EXPECT_EQ(found.in_actions > 0, overlap);
        EXPECT_GT(found.in_actions + found.after, 2);
      }
    }
  }
}

// The exchanges of a layer's tokens: how many wait for each other, and how many leave time for
// work.
std::map<bool, int> exchanges(const Config& config) {
  const RankPlanner planner(config, *architecture_of(config), schedule_of(config));
  const TracedStep step = planner.trace(0);
  std::map<bool, int> found;
  for (const TracedOperation& one : step.trace.operations()) {
    if (one.group < 0) continue;
    if (static_cast<Operation>(one.operation) == Operation::all_to_all_v) ++found[one.asynchronous];
  }
  return found;
}

TEST(ExpertExchange, OverlapsWithTheSharedExpertIfThereIsOne) {
  const TempDir dir;
  const auto of = [&](const char* architecture, const char* moe) {
    return exchanges(seeded_config(
        "llama", dir.path(),
        overrides_of({2, 1, 1}) + Overrides{std::string("model.architecture=") + architecture,
                                            "parallel.expert_model_parallel_size=2",
                                            std::string("model.moe=") + moe}));
  };
  const std::map<bool, int> without =
      of("qwen3_moe", R"({"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36})");
  EXPECT_EQ(without.count(true), 0U);
  EXPECT_GT(without.at(false), 0);
  const std::map<bool, int> overlapped =
      of("qwen2_moe",
         R"({"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 36,
          "shared_expert_intermediate_size": 20})");
  EXPECT_EQ(overlapped.at(true), without.at(false));
  EXPECT_EQ(overlapped.count(false), 0U);
}

// In a fused pair the forward's exchanges overlap with the backward's work, and the other way
// round.
TEST(ExpertExchange, OfAFusedPairOverlapsWithTheOtherMicroBatch) {
  const TempDir dir;
  const auto of = [&](const Overrides& overrides) {
    return exchanges(seeded_config(
        "llama", dir.path(),
        overrides_of({2, 1, 2, 2}) +
            Overrides{"model.architecture=mixtral",
                      R"(model.moe={"num_experts": 4, "router_topk": 2})",
                      "parallel.expert_model_parallel_size=2", "batch.micro_batch_size=1"} +
            overrides));
  };
  const std::map<bool, int> fused = of({"pipeline.schedule=dualpipev"});
  EXPECT_GT(fused.at(true), 0);
  EXPECT_EQ(of({"pipeline.schedule=zbv"}).count(true), 0U);
  // Weights that are gathered for each use are those of one compute at a time.
  EXPECT_EQ(of({"pipeline.schedule=dualpipev", "zero_optimization.stage=3",
                "zero_optimization.stage3_param_persistence_threshold=0"})
                .count(true),
            0U);
}

// Full gradient buffers that live for one micro-batch can't wait.
TEST(ReductionOrder, EachMicroBatchIsReducedInItsBackward) {
  const TempDir dir;
  for (const auto& [stage, count] : {std::pair(0, 8), {2, 1}, {2, 8}, {3, 1}, {3, 8}}) {
    const Config config = config_of(dir, zero(stage, true, false) + micro_batches(count));
    for (int place = 0; place < 4; ++place) EXPECT_GT(reductions(config, place).in_actions, 0);
  }
}

// A delayed reduction keeps its buffer no longer than until another buffer needs the memory.
TEST(ReductionOrder, TakesNoMoreMemoryThanOverlappedWithBackward) {
  const TempDir dir;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool each : {false, true}) {
      for (const int count : {1, 8}) {
        for (const char* recomputed : {"none", "full"}) {
          const auto peak = [&](bool overlap, int place) {
            const Config config = config_of(
                dir,
                zero(stage, each, overlap) + micro_batches(count) +
                    Overrides{"activation_checkpointing.granularity=" + std::string(recomputed)});
            return RankPlanner(config, *architecture_of(config), schedule_of(config))
                .plan_memory(place)
                .memory.peak_total;
          };
          for (int place = 0; place < 4; ++place) {
            SCOPED_TRACE("stage " + std::to_string(stage) +
                         (each ? ", each of " : ", once after ") + std::to_string(count) +
                         ", place " + std::to_string(place) + ", recomputed " + recomputed);
            EXPECT_LE(peak(false, place), peak(true, place));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trident::testing
