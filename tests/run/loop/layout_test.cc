// Promise 1 of the architecture: one program, any layout. The tests train up to 20 steps from
// seeded initial weights with clipping and dropout, and compare weights bitwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "scheduler/csv.h"
#include "scheduler/schedules.h"
#include "support/covering.h"
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

// Every flush schedule adds a chunk's weight gradients in micro-batch order.
// Two threads share one of three heads (kernels/cpu/attention_shares.h).
TEST(Layouts, PipelineAndZeroChangeNoBitWhereThreadsShareAHead) {
  const Overrides shared{"model.num_attention_heads=3",
                         "model.num_query_groups=3",
                         "model.max_position_embeddings=300",
                         "data.sequence_length=300",
                         "batch.global_batch_size=4",
                         "runtime.threads_per_rank=2",
                         "training.train_iters=3"};
  const Outcome plain = outcome("gpt2", {2, 1, 1}, shared);
  EXPECT_NE(outcome("gpt2", {2, 1, 1}, shared + Overrides{"runtime.threads_per_rank=1"}).weights,
            plain.weights);  // a head is divided
  expect_same_bits(outcome("gpt2", {2, 1, 2}, shared + Overrides{"zero_optimization.stage=1"}),
                   plain);
  expect_same_bits(
      outcome("gpt2", {2, 1, 1},
              shared + Overrides{"activation_checkpointing={\"granularity\": \"full\"}"}),
      plain);
}

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

// looped_bfs adds gradients in another order. At learning rates at which these models learn well,
// the difference stays at its initial size (measured from 1e-3 to 5e-3: at most 1e-7). At 0.02,
// where the losses jump up and down, it grows like any other rounding error (measured: 2e-5 to
// 3e-2).
TEST(Layouts, LoopedBreadthFirstStaysWithin1e6AtUsualRates) {
  for (const auto& [model, rate] : {std::pair("gpt2", "1e-3"), std::pair("llama", "5e-3")}) {
    SCOPED_TRACE(std::string(model) + " at " + rate);
    const Overrides at{std::string("optimizer.params.lr=") + rate};
    const Outcome plain = outcome(model, {1, 1, 1}, at);
    const Outcome looped =
        outcome(model, {1, 1, 2, 2}, at + Overrides{"pipeline.schedule=looped_bfs"});
    EXPECT_NE(looped.weights, plain.weights);
    EXPECT_LT(largest_relative_difference(looped.losses, plain.losses), 1e-6);
  }
}

TEST(Layouts, AScheduleOfTheUsersOwnTrains) {
  // The schedule orders forwards differently on each rank and places stages backwards; the weight
  // gradients keep their order.
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

// A new row in the table of axes (support/mesh.h): replicas that average gradients act as data
// parallelism without ZeRO, next to any ZeRO stage.
TEST(Layouts, AnAxisOfReplicasTrainsAsDataParallelismDoes) {
  const auto replicas = [](Layout layout, int count) {
    layout.replicas = count;
    return layout;
  };
  const Outcome two = outcome("gpt2", {2, 1, 1}, {});
  expect_same_bits(outcome("gpt2", replicas({1, 1, 1}, 2), {}), two);
  expect_same_bits(outcome("gpt2", replicas({1, 1, 2}, 2), {"pipeline.schedule=zb_h2"}), two);
  expect_same_bits(outcome("gpt2", replicas({1, 1, 1}, 2), {"zero_optimization.stage=1"}), two);
  const Overrides each{"zero_optimization.reduce_each_micro_batch=true"};
  expect_same_bits(outcome("gpt2", replicas({1, 1, 1}, 2), each), outcome("gpt2", {2, 1, 1}, each));
  expect_same_bits(outcome("gpt2", replicas({1, 2, 2}, 2), {}), outcome("gpt2", {2, 2, 1}, {}));
  // The sums are added in pairs first, so their last digits differ from the sums over four ranks.
  const Outcome four = outcome("gpt2", {4, 1, 1}, {});
  const Outcome both = outcome("gpt2", replicas({2, 1, 1}, 2), {});
  EXPECT_LT(largest_relative_difference(both.losses, four.losses), 1e-5);
  for (const char* stage : {"1", "2", "3"}) {
    SCOPED_TRACE(stage);
    const Overrides zero{std::string("zero_optimization.stage=") + stage,
                         "zero_optimization.reduce_each_micro_batch=false",
                         "zero_optimization.reduce_bucket_size=5000"};
    expect_same_bits(outcome("gpt2", replicas({2, 1, 1}, 2), zero), both);
  }
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
    EXPECT_LT(largest_relative_difference(plain.losses, fp32.losses), 1e-3);
    const Outcome other =
        outcome(model, {2, 2, 2, 2}, bf16 + Overrides{"zero_optimization.stage=1"});
    EXPECT_EQ(other.losses, plain.losses);
    EXPECT_TRUE(other.weights == plain.weights);
  }
}

// These steps are far below the resolution of bf16 weights (2^-9 of a weight of 0.02 is four
// steps). Without fp32 masters most weights would not move.
TEST(Layouts, Bf16WeightsMoveBySmallSteps) {
  for (const int stage : {0, 1}) {
    SCOPED_TRACE("zero " + std::to_string(stage));
    const auto tensors = [&](const char* rate, const char* dtype) {
      return outcome(
                 "gpt2", {2, 1, 1},
                 {"zero_optimization.stage=" + std::to_string(stage),
                  "scheduler={\"type\": \"constant\"}", std::string("optimizer.params.lr=") + rate,
                  std::string("precision.dtype=") + dtype})
          .tensors;
    };
    const auto before = tensors("0", "fp32"), fp32 = tensors("1e-5", "fp32");
    double along = 0, whole = 0;  // the change in bf16, projected on the change in fp32
    for (const auto& [name, bf16] : tensors("1e-5", "bf16")) {
      for (std::size_t i = 0; i < bf16.values.size(); ++i) {
        const double start = before.at(name).values[i];
        const double change = fp32.at(name).values[i] - start;
        along += (bf16.values[i] - start) * change;
        whole += change * change;
      }
    }
    EXPECT_NEAR(along / whole, 1, 0.1);
  }
}

// The traffic of one step on tensor rank 0.
Traffic tensor_traffic(const std::string& model, const Layout& layout, const Overrides& overrides) {
  const TempDir dir;
  const Config config =
      seeded_config(model, dir.path(), stirred + overrides_of(layout) + overrides);
  Traffic traffic;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    const ProcessGroup& tensor = own.model.topology().of(Group::tensor);
    const Traffic before = tensor.traffic();
    own.stepper.train(synthetic_batches(own.model, 0), 1e-3);
    if (own.model.topology().world.rank() != 0) return;
    const Traffic after = tensor.traffic();
    traffic = {.bytes_sent = after.bytes_sent - before.bytes_sent,
               .operations = after.operations - before.operations};
  });
  return traffic;
}

// Returns whether a row or a column of a product has the same bits for any number of other rows and
// columns. This doesn't hold for a GPU's library, nor for oneDNN with AVX2 alone, which splits sums
// by these numbers.
bool products_are_independent() {
  return usual_device() != On::cuda && __builtin_cpu_supports("avx512bw");
}

TEST(Layouts, OverlappedTensorParallelismGivesTheSameModelInMoreOperations) {
  for (const Combination& c : combinations({2, 2, 2})) {
    const std::string model = c[0] == 0 ? "gpt2" : "llama";
    const Layout layout = c[1] == 0 ? Layout{1, 2, 1} : Layout{1, 4, 2};
    const std::string granularity = c[2] == 0 ? "none" : "selective";
    SCOPED_TRACE(model + " " + name_of(layout) + " " + granularity);
    const Overrides sequence{"parallel.sequence_parallel=true",
                             "activation_checkpointing.granularity=" + granularity};
    const Overrides overlap = sequence + Overrides{"parallel.tp_comm_overlap=true"};
    const Outcome plain = outcome(model, layout, sequence);
    const Outcome overlapped = outcome(model, layout, overlap);
    // Rows are independent, and sums over ranks keep their order.
    if (products_are_independent()) {
      expect_same_bits(overlapped, plain);
    } else {
      EXPECT_LT(largest_relative_difference(overlapped.losses, plain.losses), 1e-6);
      EXPECT_LT(largest_relative_distance(overlapped.tensors, plain.tensors), 1e-4);
    }
    const Traffic undivided = tensor_traffic(model, layout, sequence);
    const Traffic parts = tensor_traffic(model, layout, overlap);
    EXPECT_EQ(parts.bytes_sent, undivided.bytes_sent);
    // For each layer and micro-batch, each of four gathers becomes t broadcasts, and each of four
    // sums becomes two reductions.
    const std::int64_t layers = 4 / layout.pipeline, microbatches = 12;
    EXPECT_EQ(parts.operations - undivided.operations,
              microbatches * layers * 4 * ((layout.tensor - 1) + 1));
  }
}

// 515 tokens, padded to 515 (516 for two tensor ranks), 640, 1024 and 2048 rows. Another padding
// gives other slices to tensor ranks. A single rank always holds all rows.
TEST(Layouts, VocabularyPaddingChangesNoBitOfUnshardedVocabularies) {
  for (const Layout layout : {Layout{1, 1, 1}, Layout{1, 2, 2}}) {
    SCOPED_TRACE(name_of(layout));
    const Outcome plain = outcome("gpt2", layout, {"model.make_vocab_size_divisible_by=128"});
    for (const char* divisor : {"1", "1024"}) {
      const Outcome padded =
          outcome("gpt2", layout, {std::string("model.make_vocab_size_divisible_by=") + divisor});
      if (layout.tensor == 1 && products_are_independent()) {
        expect_same_bits(padded, plain);
      } else {
        // The tensor ranks sum over other tokens: 7e-9 and 3e-5 were measured.
        EXPECT_LT(largest_relative_difference(padded.losses, plain.losses), 1e-7);
        EXPECT_LT(largest_relative_distance(padded.tensors, plain.tensors), 2e-4);
      }
    }
  }
}

}  // namespace
}  // namespace trident::testing
