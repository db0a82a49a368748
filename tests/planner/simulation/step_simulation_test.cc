#include "planner/simulation/step_simulation.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "scheduler/csv.h"
#include "support/temp_dir.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

TEST(StepSimulation, PartsOfEachRankAddUpToTheStep) {
  for (const PublishedRun& run : {gpt_22b, gpt_39b}) {
    const SimulatedStep step = simulated(run);
    ASSERT_EQ(std::ssize(step.ranks), run.pipeline);
    for (const RankSeconds& rank : step.ranks) {
      const double sum = rank.busy.total() + rank.messages + rank.waiting + rank.exposed;
      EXPECT_LE(sum, step.seconds * (1 + 1e-9));
      EXPECT_GT(sum, 0.9 * step.seconds);
    }
  }
}

TEST(StepSimulation, IsNeverFasterThanItsFlopsAllow) {
  const SimulatedStep step = simulated(gpt_39b);
  EXPECT_LT(step.hfu(), dgx_a100().efficiency.products);
  EXPECT_LT(step.mfu(), step.hfu());  // full recomputation computes a third again
  EXPECT_NEAR(step.hfu() / step.mfu(), 4.0 / 3, 0.02);
}

TEST(StepSimulation, ABetterMachineIsNeverSlower) {
  const double before = simulated(gpt_39b).seconds;
  const auto with = [&](auto change) {
    Machine machine = dgx_a100();
    change(machine);
    return simulated(gpt_39b, machine).seconds;
  };
  EXPECT_LT(with([](Machine& m) { m.device.peak[DType::f16] *= 1.3; }), before);
  EXPECT_LT(with([](Machine& m) { m.device.memory_bandwidth *= 1.3; }), before);
  EXPECT_LT(with([](Machine& m) { m.inside.bandwidth *= 1.3; }), before);
  EXPECT_LT(with([](Machine& m) { m.across.bandwidth *= 1.3; }), before);
  EXPECT_LT(with([](Machine& m) { m.device.launch /= 2; }), before);
  EXPECT_LT(with([](Machine& m) { m.inside.latency /= 2; }), before);
  EXPECT_EQ(with([](Machine& m) { m.device.memory *= 2; }), before);
}

TEST(StepSimulation, OverlappedOperationsCostNoMoreThanSeparateOnes) {
  const Config config = config_of(gpt_39b);
  const auto seconds = [&](const std::string& assumed) {
    Assumptions assumptions = Assumptions::of(config.zero_optimization, config.parallel);
    assumptions.assume(assumed);
    return simulated(config, dgx_a100(), assumptions).seconds;
  };
  const double all = seconds("gradients=beside,transfers=beside,attention=fused");
  EXPECT_LT(all, seconds("gradients=after"));
  EXPECT_LT(all, seconds("transfers=apart"));
  EXPECT_LT(all, seconds("attention=in_memory"));
  Assumptions assumptions;
  EXPECT_THROW(assumptions.assume("gradients=sometimes"), RequestError);
  EXPECT_THROW(assumptions.assume(""), RequestError);
}

TEST(StepSimulation, GradientsTakeARingsTimeOverTheDataGroup) {
  const SimulatedStep step = simulated(gpt_39b);
  // 39.1 billion parameters over 16 ranks, with fp16 gradients, over one device in each node.
  const double bytes = 39.1e9 / 16 * 2;
  const double links = 25e9 * dgx_a100().efficiency.links;
  const double ring = 2 * 31.0 / 32 * bytes / links;
  // The rest is the latency of about fifty buckets, and the embedding tables at the ends of the
  // pipeline.
  EXPECT_GT(step.communication.at("data"), ring);
  EXPECT_LT(step.communication.at("data"), 1.07 * ring);
}

// Without overlap, stages reduce at the same time: the step takes longer by one stage's reduction.
TEST(StepSimulation, AStageDoesntWaitForTheSumsOfAnother) {
  for (const PublishedRun& run : {PublishedRun{48, 6144, 64, 8, 8, 1, 512, 256, 1},
                                  PublishedRun{48, 6144, 64, 8, 8, 3, 512, 256, 1}, gpt_530b}) {
    Config config = config_of(run);
    const auto step = [&](bool overlap) {
      config.zero_optimization.overlap_comm = overlap;
      return simulated(config, dgx_a100(),
                       Assumptions::of(config.zero_optimization, config.parallel));
    };
    const SimulatedStep separate = step(false), overlapped = step(true);
    double sums = 0;
    for (const RankSeconds& rank : separate.ranks)
      sums = std::max(sums, rank.busy.groups.at("data"));
    EXPECT_GT(sums, 0);
    EXPECT_LT(separate.seconds, overlapped.seconds + 1.001 * sums);
  }
}

// The update needs the reduced gradients, so reductions that end late delay it.
TEST(StepSimulation, TheUpdateComesAfterTheSumsOfGradients) {
  Config config = h100_config(
      R"("num_layers": 4, "hidden_size": 1024, "num_attention_heads": 8, "vocab_size": 51200)",
      R"("data_parallel_size": 4, "tensor_model_parallel_size": 2)", "1f1b", 16, 1, 1024);
  Machine machine = machine_named("dgx_h100");
  const auto simulate = [&] {
    return simulate_step(config, *architecture_of(config), machine,
                         Assumptions::of(config.zero_optimization, config.parallel));
  };
  const double fast = simulate().seconds;
  machine.inside.bandwidth /= 100;
  const SimulatedStep slow = simulate();
  double summed = 0, update = -1, taken = 0;
  for (const OverlappedSeconds& one : slow.overlapped) {
    if (one.group.empty()) update = one.start, taken = one.seconds;
    if (one.operation == Operation::reduce_scatter && one.group == "data") {
      summed = std::max(summed, one.start + one.seconds);
    }
  }
  EXPECT_GT(summed, fast);
  EXPECT_GT(update, 0.999 * summed);
  EXPECT_GT(taken, 0);
  EXPECT_GE(slow.seconds, summed + 0.9 * taken);
}

// With 8 devices in a node, some groups of 3 lie on two nodes.
TEST(StepSimulation, AGroupThatDoesntDivideANodeIsAcrossTwo) {
  const PublishedRun three{12, 3072, 24, 3, 1, 1, 24, 24, 1};
  PublishedRun four = three;
  four.tensor = 4;
  const auto links = [](const PublishedRun& run) { return simulated(run).across; };
  EXPECT_TRUE(links(three).contains("tensor"));
  EXPECT_FALSE(links(four).contains("tensor"));
  // With 6 by 2 by 2 ranks, some pairs of replicas are inside a node and some aren't.
  EXPECT_TRUE(links({12, 3072, 24, 6, 2, 1, 24, 12, 1}).contains("data"));
  EXPECT_TRUE(links(four).contains("data"));
}

TEST(StepSimulation, RanksOfACollectiveWithinLayersWaitForTheLastOfThem) {
  for (const int tensor : {1, 4}) {
    const Config config = config_of({.layers = 4,
                                     .hidden = 1024,
                                     .heads = 16,
                                     .tensor = tensor,
                                     .pipeline = 1,
                                     .chunks = 1,
                                     .devices = tensor,
                                     .batch = 4,
                                     .micro_batch = 1});
    Machine machine = dgx_a100();
    const SimulatedStep even =
        simulated(config, machine, Assumptions::of(config.zero_optimization, config.parallel));
    machine.device.skew = 0.1;
    const SimulatedStep skewed =
        simulated(config, machine, Assumptions::of(config.zero_optimization, config.parallel));
    const double more = skewed.seconds - even.seconds;
    if (tensor == 1) {
      EXPECT_EQ(more, 0);
    } else {  // all but the update and the kernels after the last collective
      EXPECT_GT(more, 0.08 * even.ranks[0].busy.compute());
      EXPECT_LT(more, 0.1 * even.ranks[0].busy.compute());
      EXPECT_NEAR(skewed.communication.at("tensor") - even.communication.at("tensor"), more, 1e-9);
    }
  }
}

TEST(StepSimulation, AHundredThousandRanksTakeAboutAsLongAsThousands) {
  PublishedRun large = gpt_1t;
  large.devices = 102'400;
  large.batch = 102'400;
  const SimulatedStep step = simulated(large);
  EXPECT_EQ(step.world_size, 102'400);
  EXPECT_NEAR(step.seconds / simulated(gpt_1t).seconds, 1, 0.1);  // same micro-batches
}

// In theory the bubble is 0 in steady state. The remaining idle time comes from unequal stages.
TEST(StepSimulation, AScheduleThatNeverFlushesGoesAtThePaceOfItsBusiestRank) {
  PublishedRun few = gpt_39b;
  few.batch = 256;  // two micro-batches
  const Config config = config_of(few);
  const auto with = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"gradient_clipping=0", "model.tie_word_embeddings=false",
                                       "precision.dtype=bf16", "precision.grad_accum_dtype=fp32"});
    const Config changed =
        parse_config(config_to_json(config), overrides, {.constraints = config.constraints}).config;
    return simulated(changed, dgx_a100(),
                     Assumptions::of(changed.zero_optimization, changed.parallel));
  };
  const SimulatedStep flushed = with({"pipeline.schedule=1f1b"});
  const SimulatedStep running = with({"pipeline.schedule=pipedream_2bw"});
  EXPECT_GT(flushed.bubble_ratio, 1.0 / 3);
  EXPECT_LT(running.bubble_ratio, 0.05);
  EXPECT_LT(running.seconds, 0.8 * flushed.seconds);
  const RankSeconds& last = running.ranks.back();  // this rank has the head
  EXPECT_NEAR(last.waiting, 0, 1e-9);
}

TEST(StepSimulation, ASlowDeviceOrLinkHoldsUpItsPipeline) {
  const Config config = config_of(gpt_39b);
  const auto seconds = [&](const WhatIf& what_if) {
    return simulate_step(config, *architecture_of(config), dgx_a100(),
                         Assumptions::of(config.zero_optimization, config.parallel), what_if)
        .seconds;
  };
  const double usual = seconds({});
  double before = usual;
  for (const double factor : {1.2, 2.0, 4.0}) {
    const double slow = seconds({.straggler = factor, .straggler_place = 1});
    EXPECT_GT(slow, before);
    EXPECT_LE(slow, factor * usual);
    before = slow;
  }
  // With many micro-batches all ranks run at the pace of the slowest one.
  EXPECT_GT(seconds({.straggler = 2, .straggler_place = 1}), 1.6 * usual);
  EXPECT_GT(seconds({.slow_link = 20}), 1.1 * usual);
  EXPECT_GE(seconds({.slow_link = 20}), seconds({.slow_link = 10}));
  // A group from another place of the pipeline that reaches the slow node waits, too.
  PublishedRun wide = gpt_22b;
  wide.pipeline = 2, wide.tensor = 1, wide.devices = 24, wide.batch = 48, wide.heads = 48;
  const Config spread = config_of(wide);
  const SimulatedStep reached =
      simulate_step(spread, *architecture_of(spread), dgx_a100(),
                    Assumptions::of(spread.zero_optimization, spread.parallel),
                    {.slow_link = 1000, .slow_place = 1});
  const SimulatedStep free =
      simulate_step(spread, *architecture_of(spread), dgx_a100(),
                    Assumptions::of(spread.zero_optimization, spread.parallel));
  for (const std::size_t place : {0, 1}) {
    EXPECT_GT(reached.ranks[place].exposed, 100 * free.ranks[place].exposed + 1) << place;
  }
  EXPECT_EQ(seconds({.straggler = 1, .straggler_place = 1}), usual);
  EXPECT_THROW(seconds({.straggler = 2, .straggler_place = 2}), RequestError);
  EXPECT_THROW(seconds({.slow_link = 2, .slow_place = 2}), RequestError);
}

// A schedule from a file is traced with all micro-batches, a named schedule with few.
TEST(StepSimulation, FewMicroBatchesGiveTheTimeOfAll) {
  const TempDir dir;
  for (const PublishedRun& run :
       {PublishedRun{8, 512, 8, 2, 4, 1, 16, 96, 1}, PublishedRun{24, 512, 8, 1, 4, 3, 16, 96, 1},
        PublishedRun{4, 512, 8, 1, 1, 1, 4, 96, 2, "none"}}) {
    Config config = config_of(run);
    for (const int zero : {0, 2, 3}) {
      config.zero_optimization.stage = zero;
      // Groups of five micro-batches, and a last group of four.
      config.pipeline.microbatch_group_size_per_vp_stage = run.chunks > 1 && zero == 2 ? 5 : 0;
      const double few =
          simulated(config, dgx_a100(), Assumptions::of(config.zero_optimization, config.parallel))
              .seconds;
      Config all_traced = config;
      all_traced.pipeline.schedule_file = dir / "schedule.csv";
      write_file_atomic(all_traced.pipeline.schedule_file, to_csv(schedule_of(config)));
      const double all = simulated(all_traced, dgx_a100(),
                                   Assumptions::of(config.zero_optimization, config.parallel))
                             .seconds;
      EXPECT_NEAR(few / all, 1, 1e-12) << run.pipeline << " " << run.chunks << " " << zero;
    }
  }
}

// Equal places are traced once. A place with a setting of its own is traced by itself.
TEST(StepSimulation, PlacesFoldedAndUnfoldedAgree) {
  const PublishedRun run{32, 8192, 64, 8, 8, 1, 128, 64, 1};
  const Config config = config_of(run);
  const auto simulate = [&](const WhatIf& what_if) {
    return simulate_step(config, *architecture_of(config), dgx_a100(),
                         Assumptions::of(config.zero_optimization, config.parallel), what_if);
  };
  const SimulatedStep folded = simulate({});
  for (int place = 0; place < 8; ++place) {
    const SimulatedStep apart = simulate({.straggler = 1 + 1e-13, .straggler_place = place});
    EXPECT_NEAR(apart.seconds / folded.seconds, 1, 1e-9) << place;
    EXPECT_EQ(apart.peak_bytes, folded.peak_bytes);
    const auto at = static_cast<std::size_t>(place);
    EXPECT_NEAR(apart.ranks[at].busy.total() / folded.ranks[at].busy.total(), 1, 1e-9) << place;
  }
}

TEST(WhatIf, IsReadFromFactorsAndPlaces) {
  double factor = 0;
  std::int64_t place = 0;
  WhatIf::read("--straggler", "1.5:3", factor, place);
  EXPECT_EQ(factor, 1.5);
  EXPECT_EQ(place, 3);
  WhatIf::read("--straggler", "2", factor, place);
  EXPECT_EQ(factor, 2);
  for (const char* bad :
       {"", "x", "0.5", "-1", "nan", "inf", "2:", "2:x", "2:-1", "2:1:1", "2 1"}) {
    EXPECT_THROW(WhatIf::read("--straggler", bad, factor, place), RequestError) << bad;
  }
}

TEST(StepSimulation, AMachineTooSmallIsRefused) {
  Machine machine = dgx_a100();
  machine.nodes = 63;
  try {
    simulated(gpt_39b, machine);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("63 nodes of 8 devices, 504 in all"));
  }
  machine.nodes = 64;
  simulated(gpt_39b, machine);
}

}  // namespace
}  // namespace trident::testing
