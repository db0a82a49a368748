// Promise 1 of the architecture: one program, any layout. 20 steps from seeded initial weights with
// clipping and dropout; weights are compared by bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "scheduler/csv.h"
#include "scheduler/schedules.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

struct Variation {
  const char* name;
  Layout layout;
  Overrides overrides;
};

TEST(Layouts, PipelineScheduleZeroAndBucketsChangeNoBit) {
  const Outcome plain = outcome("gpt2", {2, 2, 1}, {});
  EXPECT_NE(outcome("gpt2", {2, 2, 1}, {"model.attention_dropout=0"}).losses, plain.losses);
  const std::vector<Variation> variations{
      {"pp2 1f1b", {2, 2, 2}, {}},
      {"pp2 naive", {2, 2, 2}, {"pipeline.schedule=naive"}},
      {"pp2 gpipe zero1", {2, 2, 2}, {"pipeline.schedule=gpipe", "zero_optimization.stage=1"}},
      {"pp4 1f1b", {2, 2, 4}, {}},
      {"pp2 interleaved zero1", {2, 2, 2, 2}, {"zero_optimization.stage=1"}},
      {"zero1", {2, 2, 1}, {"zero_optimization.stage=1"}},
      {"zero1 small buckets",
       {2, 2, 1},
       {"zero_optimization.stage=1", "zero_optimization.reduce_bucket_size=3000",
        "zero_optimization.allgather_bucket_size=7000"}},
      {"pp2 small buckets, no overlap",
       {2, 2, 2},
       {"zero_optimization.reduce_bucket_size=1", "zero_optimization.overlap_comm=false"}},
      {"pp2 listed layers",
       {2, 2, 2},
       {"pipeline.layer_split=[1,3]", "zero_optimization.stage=1",
        "zero_optimization.overlap_comm=false"}},
      {"pp2 another rank order", {2, 2, 2}, {"parallel.rank_order=pp-dp-tp"}}};
  for (const Variation& v : variations) {
    SCOPED_TRACE(v.name);
    expect_same_bits(outcome("gpt2", v.layout, v.overrides), plain);
  }
}

// Each takes a chunk's weight gradients in the order of the micro-batches, whatever else it orders.
TEST(Layouts, EveryFlushScheduleGivesTheSameBits) {
  const Outcome plain = outcome("gpt2", {1, 1, 1}, {});
  const Outcome both = outcome("gpt2", {2, 2, 1}, {});
  for (const char* kind : {"naive", "gpipe", "1f1b", "zb_h1", "zb_h2"}) {
    SCOPED_TRACE(kind);
    const std::string schedule = std::string("pipeline.schedule=") + kind;
    expect_same_bits(outcome("gpt2", {1, 1, 3}, {schedule}), plain);
    expect_same_bits(outcome("gpt2", {2, 2, 2}, {schedule, "zero_optimization.stage=1"}), both);
  }
  for (const char* kind : {"interleaved_1f1b", "interleaved_zero_bubble", "zbv", "dualpipev"}) {
    SCOPED_TRACE(kind);
    const std::string schedule = std::string("pipeline.schedule=") + kind;
    expect_same_bits(outcome("gpt2", {1, 1, 2, 2}, {schedule}), plain);
    expect_same_bits(outcome("gpt2", {2, 2, 2, 2}, {schedule, "zero_optimization.stage=1"}), both);
  }
}

TEST(Layouts, LoopedBreadthFirstStaysWithin1e6) {
  const Outcome plain = outcome("gpt2", {1, 1, 1}, {});
  const Outcome looped = outcome("gpt2", {1, 1, 2, 2}, {"pipeline.schedule=looped_bfs"});
  EXPECT_NE(looped.weights, plain.weights);  // another order of additions
  EXPECT_LT(largest_relative_difference(looped.losses, plain.losses), 1e-6);
}

TEST(Layouts, AScheduleOfTheUsersOwnTrains) {
  // Forwards in another order on each rank and stages placed backwards; weights in order.
  const TempDir dir;
  const Outcome plain = outcome("gpt2", {1, 1, 1}, {});
  const Schedule reversed = [&] {
    Schedule s = make_schedule({.kind = "1f1b", .stages = 2, .microbatches = 12});
    std::swap(s.ranks[0], s.ranks[1]);
    std::swap(s.placement[0], s.placement[1]);
    std::swap(s.ranks[1][0], s.ranks[1][1]);
    return s;
  }();
  write_file_atomic(dir / "own.csv", to_csv(reversed));
  expect_same_bits(outcome("gpt2", {1, 1, 2}, {"pipeline.schedule_file=" + (dir / "own.csv")}),
                   plain);
  try {
    outcome("gpt2", {1, 1, 1}, {"pipeline.schedule_file=" + (dir / "own.csv")});
    FAIL() << "accepted";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("own.csv: has 2 rows (ranks), but parallel."
                                                   "pipeline_model_parallel_size is 1"));
  }
}

TEST(Layouts, PipelineAndZeroChangeNoBitOfLlamaUnderSequenceParallelism) {
  const Overrides sequence{"parallel.sequence_parallel=true"};
  const Outcome plain = outcome("llama", {2, 2, 1}, sequence);
  expect_same_bits(outcome("llama", {2, 2, 2}, sequence), plain);
  expect_same_bits(
      outcome("llama", {2, 2, 2, 2}, sequence + Overrides{"zero_optimization.stage=1"}), plain);
}

TEST(Layouts, TensorAndDataParallelismKeepLossesWithin1e5) {
  const Outcome plain = outcome("gpt2", {1, 1, 1}, {});
  for (const Layout layout : {Layout{2, 2, 1}, Layout{1, 4, 1}, Layout{4, 1, 2}, Layout{3, 2, 1}}) {
    SCOPED_TRACE(name_of(layout));
    const Outcome other = outcome("gpt2", layout, {});
    EXPECT_LT(largest_relative_difference(other.losses, plain.losses), 1e-5);
  }
  const Outcome sequence = outcome("gpt2", {1, 2, 2}, {"parallel.sequence_parallel=true"});
  EXPECT_LT(largest_relative_difference(sequence.losses, plain.losses), 1e-5);
}

TEST(Layouts, DataParallelismEqualsAccumulationWithin1e6) {
  const Overrides one{"batch.global_batch_size=4", "batch.micro_batch_size=1"};
  const Outcome accumulated = outcome("gpt2", {1, 1, 1}, one);
  for (const int stage : {0, 1}) {
    const Outcome parallel = outcome(
        "gpt2", {4, 1, 1}, one + Overrides{"zero_optimization.stage=" + std::to_string(stage)});
    EXPECT_LT(largest_relative_difference(parallel.losses, accumulated.losses), 1e-6);
  }
}

TEST(Layouts, Bf16IsBitEqualAcrossPipelineAndZeroAndNearFp32) {
  const Overrides bf16{"precision.dtype=bf16"};
  for (const char* model : {"gpt2", "llama"}) {
    SCOPED_TRACE(model);
    const Outcome fp32 = outcome(model, {2, 2, 1}, {});
    const Outcome plain = outcome(model, {2, 2, 1}, bf16);
    EXPECT_NE(plain.losses, fp32.losses);
    EXPECT_LT(largest_relative_difference(plain.losses, fp32.losses), 2e-2);
    const Outcome other =
        outcome(model, {2, 2, 2, 2}, bf16 + Overrides{"zero_optimization.stage=1"});
    EXPECT_EQ(other.losses, plain.losses);
    EXPECT_TRUE(other.weights == plain.weights);
  }
}

// 515 tokens: padded to 515 (or 516 for two tensor ranks), 640, 1024 and 2048 rows.
// Products by rows may be dealt to the processor otherwise; sums over ranks stay in their order.
TEST(Layouts, OverlappedTensorParallelismKeepsLossesWithin1e6) {
  for (const char* model : {"gpt2", "llama"}) {
    for (const Layout layout : {Layout{1, 2, 1}, Layout{1, 4, 2}}) {
      for (const char* granularity : {"none", "selective"}) {
        SCOPED_TRACE(std::string(model) + " " + name_of(layout) + " " + granularity);
        const Overrides sequence{
            "parallel.sequence_parallel=true",
            std::string("activation_checkpointing.granularity=") + granularity};
        const Outcome plain = outcome(model, layout, sequence);
        const Outcome overlapped =
            outcome(model, layout, sequence + Overrides{"parallel.tp_comm_overlap=true"});
        EXPECT_LT(largest_relative_difference(overlapped.losses, plain.losses), 1e-6);
        EXPECT_EQ(overlapped.weights.size(), plain.weights.size());
      }
    }
  }
}

TEST(Layouts, VocabularyPaddingChangesNoBit) {
  for (const Layout layout : {Layout{1, 1, 1}, Layout{1, 2, 2}}) {
    SCOPED_TRACE(name_of(layout));
    const Outcome plain = outcome("gpt2", layout, {"model.make_vocab_size_divisible_by=128"});
    // Another padding deals other slices to tensor ranks; a single rank always holds all rows.
    for (const char* divisor : {"1", "1024"}) {
      const Outcome padded =
          outcome("gpt2", layout, {std::string("model.make_vocab_size_divisible_by=") + divisor});
      // A GPU's library may take another algorithm for other widths.
      if (layout.tensor == 1 && usual_device() != On::cuda) {
        expect_same_bits(padded, plain);
      } else {
        EXPECT_LT(largest_relative_difference(padded.losses, plain.losses), 1e-5);
        EXPECT_EQ(padded.weights.size(), plain.weights.size());
      }
    }
  }
}

}  // namespace
}  // namespace trident::testing
