// Compares the plan with the memory that a run allocates and the bytes that it sends.
#include "planner/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "models/architecture.h"
#include "planner/plan/fit.h"
#include "planner/plan/plan_check.h"
#include "planner/plan/planned_pipeline.h"
#include "scheduler/csv.h"
#include "scheduler/schedules.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

std::vector<PlanCase> many_layouts() {
  const Overrides sp{"parallel.sequence_parallel=true"};
  const Overrides zero1{"zero_optimization.stage=1"};
  const Overrides bf16{"precision.dtype=bf16"};
  const Overrides sgd{"optimizer.type=SGD", "optimizer.params.betas=null",
                      "optimizer.params.eps=null"};
  const auto zero = [](int stage) {
    return Overrides{"zero_optimization.stage=" + std::to_string(stage)};
  };
  const Overrides each{"zero_optimization.reduce_each_micro_batch=true"};
  const Overrides once{"zero_optimization.reduce_each_micro_batch=false"};
  const Overrides in_shards{"zero_optimization.stage3_param_persistence_threshold=0"};
  const Overrides adafactor{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                            "optimizer.params.eps=null"};
  const Overrides half{"precision.dtype=fp16", "precision.grad_accum_dtype=fp16"};
  const char* const full = "activation_checkpointing.granularity=full";
  const Overrides small{"zero_optimization.reduce_bucket_size=3000",
                        "zero_optimization.allgather_bucket_size=5000"};
  return {
      {"gpt2", {1, 1, 1}, {}},
      {"gpt2", {1, 1, 1}, sgd},
      {"gpt2", {2, 1, 1}, zero1 + bf16},
      {"gpt2", {1, 2, 1}, sp},
      {"gpt2", {1, 1, 4, 2}, {"model.num_layers=8"}},
      {"gpt2", {2, 2, 2}, {}},
      {"gpt2", {2, 1, 2}, zero1 + bf16 + Overrides{"pipeline.schedule=zb_h2"}},
      {"llama", {1, 1, 2, 2}, {"pipeline.schedule=zbv"}},
      {"gpt2", {2, 2, 2}, sp + zero1 + bf16 + small},
      {"gpt2", {2, 2, 2}, {"model.tie_word_embeddings=false"}},
      {"gpt2", {3, 1, 2}, zero1 + Overrides{"pipeline.layer_split=[1,3]"}},
      {"gpt2", {3, 1, 2}, {"parallel.rank_order=pp-dp-tp", "model.num_layers=3"}},
      {"llama", {1, 1, 1}, bf16},
      {"llama", {1, 4, 2}, sp + zero1},
      {"llama", {4, 2, 1}, zero1 + small},
      {"llama", {2, 2, 2}, {"model.tie_word_embeddings=true"}},
      {"llama", {2, 1, 2, 2}, zero1 + Overrides{"model.num_layers=7", "model.vocab_size=509"}},
      {"llama", {1, 2, 2}, sgd + Overrides{"optimizer.params.momentum=0.9"}},
      {"gpt2", {2, 1, 1}, each + zero(0)},
      {"gpt2", {2, 2, 2}, each + zero(1) + sp},
      {"gpt2", {2, 1, 1}, once + zero(2)},
      {"gpt2", {2, 2, 2}, zero(2) + sp + bf16},
      {"llama", {3, 1, 2}, zero(2) + small},
      {"gpt2", {2, 1, 1}, zero(3)},
      {"gpt2", {2, 1, 2}, zero(3) + in_shards},
      {"gpt2", {2, 1, 1}, zero(3) + in_shards + once + bf16},
      {"gpt2", {2, 2, 2}, zero(3) + in_shards + sp + Overrides{full, "model.num_layers=3"}},
      {"llama", {2, 2, 1}, zero(3) + Overrides{full, "activation_checkpointing.num_layers=3"}},
      {"llama", {2, 1, 2, 2}, zero(3) + in_shards + Overrides{"pipeline.schedule=zbv"}},
      {"llama", {4, 1, 1}, zero(3) + in_shards + Overrides{"zero_optimization.overlap_comm=false"}},
      {"gpt2", {1, 2, 2}, sp + Overrides{"activation_checkpointing.granularity=selective"}},
      {"gpt2", {1, 2, 1}, Overrides{full}},
      {"gpt2", {2, 2, 2}, adafactor + zero(2) + bf16},
      {"llama", {3, 2, 1}, adafactor},
      {"llama", {2, 1, 2}, adafactor + zero(3) + Overrides{"pipeline.schedule=zb_h2"}},
      {"gpt2", {2, 2, 2}, half + zero(1) + sp},
      {"gpt2", {2, 1, 2}, half + zero(2)},
      {"gpt2", {2, 1, 1}, half + zero(0) + each},
      {"gpt2", {1, 1, 2, 1, 2}, {}},
      {"gpt2", {2, 2, 1, 1, 2}, zero(1) + sp},
      {"gpt2", {1, 1, 1, 1, 3}, each + zero(0)},
      {"llama", {2, 1, 1, 1, 2}, zero(3) + in_shards + bf16}};
}

TEST(Plan, StatesAndTrafficAreExactAndPeaksWithin5PercentInManyLayouts) {
  for (const PlanCase& c : many_layouts()) expect_planned(c);
}

// Rank 0's share of a sample, of which no rank has more.
TEST(Plan, CountsWhatRanksThatShareSamplesExchange) {
  const auto context = [](int ranks, const std::string& way) {
    return Overrides{"parallel.context_parallel_size=" + std::to_string(ranks),
                     "parallel.cp_comm_type=" + way, "data.sequence_length=24"};
  };
  const Overrides zero1{"zero_optimization.stage=1"};
  for (const PlanCase& c :
       {PlanCase{"gpt2", {1, 1, 1}, context(2, "p2p")},
        {"gpt2", {2, 1, 1}, context(3, "all_gather") + zero1},
        {"llama", {1, 1, 2}, context(2, "a2a")},
        {"llama", {1, 2, 1}, context(2, "p2p") + Overrides{"parallel.sequence_parallel=true"}},
        {"llama", {1, 1, 1}, context(4, "p2p") + Overrides{"precision.dtype=bf16"}},
        {"gpt2",
         {1, 1, 1},
         context(4, "a2a+p2p") +
             Overrides{"parallel.hierarchical_context_parallel_sizes=[2, 2]"}}}) {
    expect_planned(c);
  }
}

// Each token takes all experts, so that the exchange is as even as the plan takes it to be.
TEST(Plan, CountsExpertsAndTheirExchange) {
  const auto parallel = [](int expert, int tensor) {
    return Overrides{"parallel.expert_model_parallel_size=" + std::to_string(expert),
                     "parallel.expert_tensor_parallel_size=" + std::to_string(tensor)};
  };
  const Overrides experts{"model.architecture=qwen3_moe",
                          R"(model.moe={"num_experts": 4, "router_topk": 4, "ffn_hidden_size": 60,
                    "z_loss_coeff": 0.1, "layer_freq": [1, 0, 1, 1]})"};
  const auto zero = [](int stage) {
    return Overrides{"zero_optimization.stage=" + std::to_string(stage),
                     "zero_optimization.stage3_param_persistence_threshold=0"};
  };
  const Overrides each{"zero_optimization.reduce_each_micro_batch=true"};
  const Overrides sp{"parallel.sequence_parallel=true"};
  for (const PlanCase& c : {PlanCase{"llama", {1, 1, 1}, experts},
                            {"llama", {2, 1, 1}, experts + parallel(2, 1)},
                            {"llama", {2, 1, 2}, experts + parallel(2, 1) + zero(3) + each},
                            {"llama", {2, 2, 1}, experts + parallel(2, 1) + zero(2)},
                            {"llama", {2, 2, 1}, experts + parallel(2, 2) + zero(1) + sp},
                            {"llama", {1, 2, 2}, experts + parallel(1, 2) + sp}}) {
    expect_planned(c);
  }
}

// Biases of experts, which roll-back copies, and a router that stays fp32, whose rows ZeRO shards
// unevenly.
TEST(Plan, CountsParametersThatStayFp32AndBuffers) {
  const Overrides deepseek{"model.architecture=deepseek_v3",
                           "model.num_query_groups=8",
                           "model.kv_lora_rank=12",
                           "model.q_lora_rank=10",
                           "model.qk_head_dim=6",
                           "model.qk_pos_emb_head_dim=4",
                           "model.v_head_dim=5",
                           R"(model.moe={"num_experts": 5, "router_topk": 5, "ffn_hidden_size": 60,
                    "shared_expert_intermediate_size": 60, "layer_freq": [0, 1, 1, 1]})"};
  const Overrides bf16{"precision.dtype=bf16", "precision.grad_accum_dtype=bf16",
                       "zero_optimization.stage=2"};
  const Overrides one{"parallel.expert_tensor_parallel_size=1"};
  const Overrides zb{"pipeline.schedule=zb_h1"};
  const Overrides mtp{"model.mtp_num_layers=1"};
  const Overrides olmoe{"model.architecture=olmoe",
                        R"(model.moe={"num_experts": 4, "router_topk": 4})"};
  for (const PlanCase& c :
       {PlanCase{"llama", {1, 1, 1}, deepseek},
        {"llama", {2, 2, 1}, deepseek + bf16 + one},
        {"llama", {2, 1, 1}, deepseek + Overrides{"precision.dtype=bf16"}},
        {"llama", {1, 1, 2}, deepseek + zb},
        {"llama", {2, 1, 2}, deepseek + zb + bf16},
        {"llama", {2, 1, 1}, deepseek + mtp},
        {"llama",
         {2, 1, 2},
         deepseek + mtp + zb + bf16 + Overrides{"model.tie_word_embeddings=true"}},
        {"llama", {2, 2, 1}, olmoe + one}}) {
    expect_planned(c);
  }
}

// If the plan runs fewer micro-batches than the step has, it extrapolates their traffic.
TEST(Plan, TrafficOfManyMicroBatchesIsExtrapolatedFromFew) {
  const auto zero = [](int stage) {
    return Overrides{"zero_optimization.stage=" + std::to_string(stage),
                     "zero_optimization.stage3_param_persistence_threshold=0"};
  };
  struct Kind {
    const char* name;
    int chunks;
  };
  const std::vector<Kind> kinds{{"naive", 1},
                                {"gpipe", 1},
                                {"1f1b", 1},
                                {"zb_h1", 1},
                                {"interleaved_1f1b", 2},
                                {"looped_bfs", 2},
                                {"zbv", 2},
                                {"dualpipev", 2},
                                {"interleaved_zero_bubble", 2}};
  for (const auto& [kind, chunks] : kinds) {
    for (const int stage : {0, 2, 3}) {
      const Layout layout{.data = 2, .pipeline = 2, .chunks = chunks};
      expect_planned(
          {"gpt2", layout,
           zero(stage) + Overrides{std::string("pipeline.schedule=") + kind, "model.num_layers=6",
                                   "data.sequence_length=8", "model.max_position_embeddings=8",
                                   "batch.micro_batch_size=1", "batch.global_batch_size=40"}});
    }
  }
  expect_planned({"llama",
                  {.data = 1, .tensor = 2, .pipeline = 3, .replicas = 2},
                  Overrides{"parallel.sequence_parallel=true", "batch.micro_batch_size=1",
                            "batch.global_batch_size=40", "model.num_layers=6",
                            "zero_optimization.reduce_each_micro_batch=true"}});
}

// A schedule from a file is planned with all its micro-batches.
TEST(Plan, OfFewMicroBatchesIsThatOfAll) {
  struct Case {
    const char* kind;
    int pipeline, chunks, microbatches;
    Overrides more = {};
  };
  const Overrides zero2{"zero_optimization.stage=2"};
  const Overrides zero3{"zero_optimization.stage=3",
                        "zero_optimization.stage3_param_persistence_threshold=0"};
  const Overrides full{"activation_checkpointing.granularity=full"};
  for (const auto& [kind, pipeline, chunks, microbatches, more] :
       {Case{"1f1b", 2, 1, 7}, Case{"1f1b", 4, 1, 31, zero2}, Case{"interleaved_1f1b", 2, 3, 14},
        Case{"interleaved_1f1b", 6, 3, 30, zero3}, Case{"interleaved_1f1b", 8, 3, 40},
        Case{"interleaved_1f1b", 4, 2, 29, {"pipeline.microbatch_group_size_per_vp_stage=5"}},
        Case{
            "interleaved_zero_bubble", 3, 2, 45, {"pipeline.microbatch_group_size_per_vp_stage=9"}},
        Case{"zb_h1", 3, 1, 20, zero2}, Case{"zb_h2", 2, 1, 9, full}, Case{"zbv", 2, 2, 24, zero3},
        Case{"dualpipev", 2, 2, 14}}) {
    SCOPED_TRACE(kind);
    const TempDir dir;
    const Overrides common =
        overrides_of({2, 1, pipeline, chunks}) + more +
        Overrides{std::string("pipeline.schedule=") + kind,
                  "model.num_layers=" + std::to_string(2 * pipeline * chunks),
                  "batch.micro_batch_size=1",
                  "batch.global_batch_size=" + std::to_string(2 * microbatches)};
    const Config few = seeded_config("gpt2", dir.path(), common);
    const std::string file = dir / "schedule.csv";
    write_file_atomic(file, to_csv(schedule_of(few)));
    const Config all =
        seeded_config("gpt2", dir.path(), common + Overrides{"pipeline.schedule_file=" + file});
    const auto architecture = built_in_architectures().at("gpt2");
    const RankPlanner by_few(few, *architecture, schedule_of(few));
    const RankPlanner by_all(all, *architecture, schedule_of(all));
    EXPECT_LT(by_few.config().num_microbatches(), by_all.config().num_microbatches());
    for (int place = 0; place < pipeline; ++place) {
      const PlannedRank a = by_few.plan(place), b = by_all.plan(place);
      EXPECT_EQ(a.memory, b.memory) << place;
      EXPECT_EQ(a.collecting, b.collecting) << place;
      EXPECT_TRUE(a.traffic == b.traffic) << place;
    }
  }
}

// The elements that a rank sends in a step over the data-parallel group, times N / (N - 1), with Φ
// parameters (padding of buckets included) and m micro-batches (Rajbhandari 2019).
TEST(Traffic, OfTheDataGroupEqualsTheFormulasExactly) {
  const TempDir dir;
  for (const int ranks : {2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const bool each : {false, true}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " + std::to_string(stage) +
                     (each ? " each" : " once"));
        const Config config =
            seeded_config("llama", dir.path(),
                          overrides_of({ranks, 1, 1}) +
                              Overrides{"zero_optimization.stage=" + std::to_string(stage),
                                        "zero_optimization.stage3_param_persistence_threshold=0",
                                        std::string("zero_optimization.reduce_each_micro_batch=") +
                                            (each ? "true" : "false")});
        const std::int64_t m = config.num_microbatches();
        ASSERT_GT(m, 1);
        on_ranks(config, transport_options(config), [&](Rank& own) {
          // Backward doesn't read the embedding tables, and finds the final norm still gathered.
          std::int64_t phi = 0, spared = 0;
          for (const Bucket& bucket : own.model.buckets().buckets()) {
            phi += bucket.layout.elements;
            const std::string& name = bucket.layout.entries.front().parameter->name();
            const bool spares = name == "embedding.weight" || name == "output.weight" ||
                                name == "final_norm.weight";
            spared += spares ? bucket.layout.elements : 0;
          }
          const std::int64_t reduced = each ? m * phi : phi;
          const std::int64_t formula = stage == 0  ? 2 * reduced
                                       : stage < 3 ? reduced + phi
                                                   : reduced + 2 * m * phi - m * spared;
          for (int k = 0; k < 2; ++k) {
            const std::int64_t before = sent_by(own.stepper).at("data");
            own.stepper.train(synthetic_batches(own.model, k), 1e-3);
            EXPECT_EQ(sent_by(own.stepper).at("data") - before, formula / ranks * (ranks - 1) * 4);
          }
          EXPECT_GT(spared, 0);
        });
      }
    }
  }
}

// The step check comes late; every iteration but the last one leaves it open.
TEST(Traffic, OfIterationsThatOverlapIsThePlans) {
  for (const char* kind : {"zb_h2", "zbv"}) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(std::string(kind) + " " + std::to_string(stage));
      const TempDir dir;
      const Config config = seeded_config(
          "gpt2", dir.path(),
          overrides_of({2, 1, 2, kind == std::string("zbv") ? 2 : 1}) +
              Overrides{std::string("pipeline.schedule=") + kind, "gradient_clipping=0",
                        "zero_optimization.stage=" + std::to_string(stage),
                        "zero_optimization.stage3_param_persistence_threshold=0"});
      std::int64_t planned = 0;
      for (const PlanRank& rank :
           plan_each_rank(config, *built_in_architectures().at("gpt2")).ranks) {
        planned += rank.bytes_sent.at("data");
      }
      const TrainingSummary summary = train(config);
      for (std::size_t k = 1; k + 1 < summary.history.size(); ++k) {
        EXPECT_EQ(summary.history[k].bytes_sent.at("data"), planned) << k;
      }
    }
  }
}

TEST(Plan, TakesGroupsOfMicroBatchesThatASmallerRunWouldNotFit) {
  const TempDir dir;
  const Config config =
      seeded_config("gpt2", dir.path(),
                    overrides_of({1, 1, 2, 2}) +
                        Overrides{"pipeline.microbatch_group_size_per_vp_stage=7",
                                  "batch.global_batch_size=21", "batch.micro_batch_size=1"});
  const Plan plan = make_plan(config, *built_in_architectures().at("gpt2"));
  const auto planned = largest_rank(plan);
  const auto measured = train(config).history.back().peak_memory;
  EXPECT_NEAR(static_cast<double>(planned.at("total")) / static_cast<double>(measured.at("total")),
              1, 0.05);
}

// A rank that only sends, and waits for no backward, must still not run ahead without a limit.
TEST(Plan, EvaluationTakesNoMoreActivationsThanTraining) {
  const TempDir dir;
  const Config config =
      seeded_config("gpt2", dir.path(),
                    overrides_of({1, 1, 2}) +
                        Overrides{"batch.global_batch_size=256", "batch.micro_batch_size=4"});
  on_ranks(config, transport_options(config), [&](Rank& own) {
    const auto activations = [&] {
      return own.model.context().ledger().figures().peak[static_cast<std::size_t>(
          Category::activation)];
    };
    own.stepper.train(synthetic_batches(own.model, 0), 1e-3);
    const std::int64_t trained = activations();
    own.model.context().ledger().reset_peaks();
    // The other ranks have time to run ahead.
    if (own.model.topology().of(Group::pipeline).rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    own.evaluator.mean_loss(synthetic_batches(own.model, 1));
    EXPECT_LE(activations(), trained);
  });
}

// Rank 0 collects the reports of every action of every rank.
TEST(Plan, CountsTheMonitorsReportsOfManyMicroBatches) {
  for (const char* kind : {"1f1b", "zb_h2"}) {
    SCOPED_TRACE(kind);
    const TempDir dir;
    const Config config = seeded_config(
        "gpt2", dir.path(),
        overrides_of({2, 1, 2}) + Overrides{std::string("pipeline.schedule=") + kind,
                                            "batch.global_batch_size=512",
                                            "batch.micro_batch_size=1", "training.train_iters=4",
                                            "scheduler.warmup_iters=1", "gradient_clipping=0"});
    const auto architecture = built_in_architectures().at("gpt2");
    const auto planned = largest_rank(make_plan(config, *architecture));
    const auto measured = train(config).history.back().peak_memory;
    for (const char* name : {"communication", "activation", "total"}) {
      EXPECT_NEAR(static_cast<double>(planned.at(name)) / static_cast<double>(measured.at(name)), 1,
                  0.05)
          << name;
    }
  }
}

// Only a few places between a pipeline's ends are planned, and the others are interpolated. Each
// interpolated plan must equal the rank's own plan in every category. For a V schedule the values
// bend instead of lying on one line.
TEST(Plan, OfManyPipelineRanksIsThatOfEachPlannedAlone) {
  const auto elements = [](const PlannedRank& rank) {
    std::vector<std::int64_t> counts;
    for (const BucketLayout& bucket : rank.buckets) counts.push_back(bucket.elements);
    return counts;
  };
  const TempDir dir;
  for (const std::string kind : {"1f1b", "zb_h1", "pipedream_2bw", "zbv"}) {
    SCOPED_TRACE(kind);
    const int chunks = kind == "zbv" ? 2 : 1, layers = 20 * chunks;
    std::string split = "pipeline.layer_split=[1";
    for (int i = 1; i < layers; ++i) split += ",1";
    const Config config = seeded_config(
        "gpt2", dir.path(),
        overrides_of({1, 1, 20, chunks}) +
            Overrides{"pipeline.schedule=" + kind, "model.num_layers=" + std::to_string(layers),
                      split + "]", "batch.micro_batch_size=1", "batch.global_batch_size=40"});
    const auto architecture = built_in_architectures().at("gpt2");
    const Schedule schedule = schedule_of(config);
    const auto plans = plan_pipeline(config, *architecture, schedule);
    ASSERT_EQ(plans.size(), 20U);
    const RankPlanner planner(config, *architecture, schedule);
    for (int rank = 0; rank < 20; ++rank) {
      const PlannedRank alone = planner.plan(rank);
      EXPECT_EQ(plans[static_cast<std::size_t>(rank)].memory, alone.memory) << rank;
      EXPECT_TRUE(plans[static_cast<std::size_t>(rank)].traffic == alone.traffic) << rank;
      EXPECT_EQ(elements(plans[static_cast<std::size_t>(rank)]), elements(alone)) << rank;
      EXPECT_EQ(plans[static_cast<std::size_t>(rank)].rolls_back, alone.rolls_back) << rank;
    }
    const auto held =
        plan_memory(config, *architecture, schedule, [](const auto&) { return false; });
    ASSERT_EQ(held.size(), 20U);
    for (std::size_t rank = 0; rank < 20; ++rank) {
      EXPECT_EQ(held[rank].memory, plans[rank].memory) << rank;
      EXPECT_EQ(held[rank].collecting, plans[rank].collecting) << rank;
    }
    // If a place passes the limit, the first place tried suffices.
    EXPECT_EQ(plan_memory(config, *architecture, schedule, [](const auto&) { return true; }).size(),
              1U);
  }
}

// Under full recomputation, the tensors between the parts of a split backward are larger than the
// saved activations of a forward. Data ranks other than the first may hold more of the optimizer's
// state.
TEST(Plan, ThePlannedPeakIsThatOfTheLargestRankOfTheTable) {
  const TempDir dir;
  const Overrides full{"activation_checkpointing.granularity=full"}, none;
  const Overrides adafactor{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                            "optimizer.params.eps=null"};
  struct Case {
    const char* schedule;
    Layout layout;
    int layers, zero;
    Overrides changes;
  };
  const std::vector<Case> cases{{"zbv", {1, 1, 8, 2}, 16, 0, full},
                                {"zbv", {1, 1, 8, 2}, 16, 0, none},
                                {"dualpipev", {2, 1, 4, 2}, 8, 0, full},
                                {"zb_h1", {1, 1, 4}, 8, 0, full},
                                {"naive", {4, 1, 2}, 8, 1, adafactor},
                                {"gpipe", {3, 1, 4}, 8, 3, none},
                                {"interleaved_1f1b", {1, 2, 4, 2}, 8, 0, full}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.schedule + name_of(c.layout));
    const Config config = seeded_config(
        "gpt2", dir.path(),
        overrides_of(c.layout) + c.changes +
            Overrides{std::string("pipeline.schedule=") + c.schedule,
                      "model.num_layers=" + std::to_string(c.layers),
                      "zero_optimization.stage=" + std::to_string(c.zero),
                      "batch.micro_batch_size=1",
                      "batch.global_batch_size=" + std::to_string(16 * c.layout.data)});
    const auto architecture = built_in_architectures().at("gpt2");
    std::int64_t largest = 0;
    for (const PlanRank& rank : make_plan(config, *architecture).ranks) {
      largest = std::max(largest, rank.peak_bytes);
    }
    const std::int64_t peak = *planned_peak(config, *architecture);
    EXPECT_EQ(peak, largest);
    EXPECT_EQ(*planned_peak(config, *architecture, peak), peak);
    EXPECT_GT(*planned_peak(config, *architecture, peak - 1), peak - 1);
  }
}

TEST(Plan, FoldsEqualRanksWithTheFiguresOfEach) {
  const TempDir dir;
  const Overrides one{"zero_optimization.stage=1", "parallel.sequence_parallel=true"};
  const Overrides adafactor{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                            "optimizer.params.eps=null"};
  const std::vector<std::pair<Layout, Overrides>> cases{
      {{3, 2, 2}, one},
      {{3, 2, 2}, one + adafactor},
      {{6, 1, 2}, {"zero_optimization.stage=0"}}};  // all data ranks are equal
  for (const auto& [layout, changes] : cases) {
    SCOPED_TRACE(name_of(layout));
    const Config config = seeded_config("gpt2", dir.path(), overrides_of(layout) + changes);
    const auto shared = built_in_architectures().at("gpt2");
    const Architecture& architecture = *shared;
    const auto key = [](const PlanRank& r) {
      return std::tuple(r.pipeline, r.layers, r.parameters, r.bytes, r.peak_bytes, r.bytes_sent);
    };
    std::map<decltype(key(PlanRank{})), std::pair<std::int64_t, std::int64_t>> counted, folded;
    for (const PlanRank& r : plan_each_rank(config, architecture).ranks) {
      const auto [at, added] = counted.try_emplace(key(r), r.rank, 0);
      ++at->second.second;
    }
    const Plan plan = make_plan(config, architecture);
    for (const PlanRank& r : plan.ranks) folded[key(r)] = {r.rank, r.count};
    EXPECT_EQ(folded, counted);  // first rank and number of equal ranks
    EXPECT_EQ(folded.size(), plan.ranks.size());
    EXPECT_LT(plan.ranks.size(), 12U);
  }
}

// The plan runs each size that a schedule accepts; none may end in an error of the run.
TEST(Plan, EveryKindRunsAtEverySmallSizeThatItAccepts) {
  const TempDir dir;
  const auto shared = built_in_architectures().at("gpt2");
  const Architecture& architecture = *shared;
  int planned = 0;
  for (const std::string& kind : names_of(schedule_registry())) {
    const bool looped =
        kind == "interleaved_1f1b" || kind == "looped_bfs" || kind == "interleaved_zero_bubble";
    const int chunks = looped || kind == "zbv" || kind == "dualpipev" ? 2 : 1;
    for (const int p : {1, 2, 3, 5}) {
      for (const int m : {1, 2, 3, 4, 10}) {
        SCOPED_TRACE(kind + " p " + std::to_string(p) + " m " + std::to_string(m));
        try {
          const Config config =
              seeded_config("gpt2", dir.path(),
                            overrides_of({1, 1, p, chunks}) +
                                Overrides{"pipeline.schedule=" + kind, "model.num_layers=10",
                                          "model.tie_word_embeddings=false", "gradient_clipping=0",
                                          "batch.micro_batch_size=1",
                                          "batch.global_batch_size=" + std::to_string(m)});
          make_plan(config, architecture);
          ++planned;
        } catch (const RequestError&) {  // the size is refused before anything runs
        }
      }
    }
  }
  EXPECT_GT(planned, 100);
}

TEST(Plan, EachParameterOfTheModelCountsOnceInEveryLayout) {
  const TempDir dir;
  const auto parameters = [&](const char* model, const Layout& layout) {
    const Config config = seeded_config(model, dir.path(), overrides_of(layout));
    const Plan plan = make_plan(config, *built_in_architectures().at(model));
    std::int64_t sum = 0;
    for (const auto& [role, count] : plan.parameters_by_role) sum += count;
    EXPECT_EQ(sum, plan.parameters) << name_of(layout);
    return plan.parameters_by_role;
  };
  using enum ParameterRole;
  using Roles = std::map<ParameterRole, std::int64_t>;
  // h 48, l 4, V 515, positions 24; GPT-2: 12h² + 13h for each layer, tied embeddings, a final
  // norm.
  const Roles gpt2{{embedding, 515 * 48 + 24 * 48},
                   {matrix, 4 * 12 * 48 * 48},
                   {ParameterRole::vector, 4 * 13 * 48 + 2 * 48}};
  // Llama: 8 heads of 6 in 4 groups, f 132; two embeddings.
  const Roles llama{{embedding, 515 * 48},
                    {head, 515 * 48},
                    {matrix, 4 * (2 * 48 * 48 + 2 * 48 * 24 + 3 * 48 * 132)},
                    {ParameterRole::vector, 4 * 2 * 48 + 48}};
  for (const Layout layout : {Layout{1, 1, 1}, Layout{2, 2, 2}, Layout{1, 4, 2, 2}}) {
    EXPECT_EQ(parameters("gpt2", layout), gpt2) << name_of(layout);
    EXPECT_EQ(parameters("llama", layout), llama) << name_of(layout);
  }
}

// The plan needs only the number of tokens.
TEST(Plan, TakesNoMemoryForTheBatch) {
  const TempDir dir;
  const Config config = seeded_config(
      "gpt2", dir.path(),
      {"batch.micro_batch_size=1000000", "batch.global_batch_size=4000000", "model.vocab_size=10"});
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const Plan plan = make_plan(config, *built_in_architectures().at("gpt2"));
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_GT(plan.ranks.front().bytes.at("activation"), std::int64_t{1} << 34);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 500'000);  // kB
}

TEST(Plan, TheTrillionParameterConfigHas1008BillionOn3072Ranks) {
  const Config config = load_config(source_dir() + "/configs/gpt_1t.json", {},
                                    {.constraints = built_in_constraints()})
                            .config;
  const Plan plan = make_plan(config, *built_in_architectures().at("gpt2"));
  EXPECT_EQ(plan.world_size, 3072);
  std::int64_t counted = 0;
  for (const PlanRank& rank : plan.ranks) counted += rank.count;
  EXPECT_EQ(counted, 3072);
  EXPECT_EQ(std::llround(static_cast<double>(plan.parameters) * 1e-9), 1008);
  // 72·B·s·l·h²(1 + s/(6h) + V/(12·l·h)), Narayanan 2021.
  const double B = 3072, s = 2048, l = 128, h = 25600, V = 51200;
  const double flops = 72 * B * s * l * h * h * (1 + s / (6 * h) + V / (12 * l * h));
  EXPECT_NEAR(plan.flops_per_step / flops, 1, 1e-12);
  // The text fits one screen: first, middle and last stages.
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::string text = plan_text(plan);
  EXPECT_EQ(lines(text), 8);
  EXPECT_THAT(text, ::testing::HasSubstr("3072 ranks, 1.008 trillion parameters, 38.56 EFLOP"));
  EXPECT_THAT(text, ::testing::HasSubstr(" 2976     1-62 "));
  EXPECT_EQ(lines(plan_text(plan, true)), 4 + std::ssize(plan.ranks));
  // 1F1B, p 64, m 512: (p - 1)/(m + p - 1).
  EXPECT_NEAR(plan.bubble_ratio, 63.0 / 575.0, 1e-12);
}

}  // namespace
}  // namespace trident::testing
