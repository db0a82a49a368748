// Promise 1 of the architecture for mixtures of experts: at equal data, tensor and expert sizes no
// layout changes a bit, and expert parallelism changes none where each micro-batch is reduced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files/file.h"
#include "engine/setup/registry.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "support/training_run.h"
#include "tests/run/loop/layout_variations.h"

namespace trident::testing {
namespace {

// A model of experts of the golden Llama's shape, with both losses; the first layer is dense.
const Overrides experts{
    "model.architecture=qwen3_moe",
    "training.train_iters=4",
    "scheduler.warmup_iters=0",
    "batch.global_batch_size=12",
    "batch.micro_batch_size=1",
    R"(model.moe={"num_experts": 8, "router_topk": 2, "ffn_hidden_size": 36, "z_loss_coeff": 0.01,
                  "aux_loss_coeff": 0.02, "layer_freq": [0, 1, 1, 1]})"};
const Overrides each_micro_batch{"zero_optimization.reduce_each_micro_batch=true"};

Overrides parallel(int expert, int tensor = 1) {
  return {"parallel.expert_model_parallel_size=" + std::to_string(expert),
          "parallel.expert_tensor_parallel_size=" + std::to_string(tensor)};
}

Outcome of(const Layout& layout, const Overrides& overrides) {
  return outcome("llama", layout, experts + overrides);
}

TEST(ExpertLayouts, PipelineScheduleAndZeroChangeNoBit) {
  const Outcome plain = of({2, 1, 1}, parallel(2));
  EXPECT_NE(of({2, 1, 1}, parallel(2) + Overrides{"model.moe.z_loss_coeff=0"}).weights,
            plain.weights);
  std::vector<LayoutVariation> variations = layout_variations;
  variations.push_back({"zero1", {2, 1, 1}, {"zero_optimization.stage=1"}});
  variations.push_back({"small buckets", {2, 1, 1}, {"zero_optimization.reduce_bucket_size=3000"}});
  for (const LayoutVariation& v : variations) {
    SCOPED_TRACE(v.name);
    expect_same_bits(of(v.layout, parallel(2) + v.overrides), plain);
  }
}

TEST(ExpertLayouts, HoldersOfAnExpertChangeNoBitWhereEachMicroBatchIsReduced) {
  const Outcome one = of({2, 1, 1}, parallel(1) + each_micro_batch);
  expect_same_bits(of({2, 1, 1}, parallel(2) + each_micro_batch), one);
  expect_same_bits(
      of({2, 1, 2}, parallel(2) + each_micro_batch + Overrides{"zero_optimization.stage=3"}), one);
  const Outcome four = of({4, 1, 1}, parallel(1) + each_micro_batch);
  expect_same_bits(of({4, 1, 1}, parallel(4) + each_micro_batch), four);
}

// The shared expert's work runs while rows are on their way, which changes no order of additions.
TEST(ExpertLayouts, ASharedExpertDuringTheExchangeChangesNoBit) {
  const Overrides shared{"model.architecture=qwen2_moe",
                         "model.moe.shared_expert_intermediate_size=20"};
  const Outcome one = of({2, 1, 1}, shared + parallel(1) + each_micro_batch);
  expect_same_bits(of({2, 1, 1}, shared + parallel(2) + each_micro_batch), one);
  expect_same_bits(
      of({2, 1, 2}, shared + parallel(2) + each_micro_batch + Overrides{"pipeline.schedule=zb_h1"}),
      one);
  expect_same_bits(of({2, 1, 1}, shared + parallel(2) + each_micro_batch +
                                     Overrides{"activation_checkpointing.granularity=full"}),
                   one);
  const Outcome folded = of({1, 2, 1}, shared + parallel(2, 1));
  EXPECT_LT(largest_relative_difference(folded.losses, of({1, 1, 1}, shared).losses), 1e-5);
}

// With one data rank only experts have several holders, whose gradients are reduced.
TEST(ExpertLayouts, HoldersOnTensorRanksReduceEachMicroBatch) {
  const Outcome one = of({1, 2, 1}, parallel(1, 1) + each_micro_batch);
  expect_same_bits(
      of({1, 2, 2}, parallel(1, 1) + each_micro_batch + Overrides{"zero_optimization.stage=3"}),
      one);
  EXPECT_LT(largest_relative_difference(of({1, 2, 1}, parallel(2, 1) + each_micro_batch).losses,
                                        one.losses),
            1e-5);
}

// Sums over an expert's complete parameters go over both groups that shard it.
TEST(ExpertLayouts, AdafactorFollowsOneRank) {
  const Overrides adafactor{"optimizer.type=Adafactor", "optimizer.params.betas=null",
                            "optimizer.params.eps=null"};
  const Outcome one = of({1, 1, 1}, adafactor);
  EXPECT_LT(
      largest_relative_difference(of({2, 2, 1}, parallel(2, 2) + adafactor).losses, one.losses),
      1e-5);
}

// Experts fold over data and tensor ranks otherwise than attention does.
TEST(ExpertLayouts, FoldedAxesFollowOneRank) {
  const Outcome one = of({1, 1, 1}, {});
  struct Folded {
    Layout layout;
    int expert, tensor;
    bool sequence_parallel;
  };
  for (const Folded& f : {Folded{{2, 2, 1}, 2, 2, false}, Folded{{2, 2, 1}, 4, 1, true},
                          Folded{{1, 2, 2}, 2, 1, false}, Folded{{3, 2, 1}, 2, 3, true}}) {
    SCOPED_TRACE(name_of(f.layout) + " ep " + std::to_string(f.expert) + " etp " +
                 std::to_string(f.tensor));
    const Outcome folded = of(f.layout, parallel(f.expert, f.tensor) +
                                            Overrides{std::string("parallel.sequence_parallel=") +
                                                      (f.sequence_parallel ? "true" : "false")});
    EXPECT_LT(largest_relative_difference(folded.losses, one.losses), 1e-5);
    EXPECT_LT(largest_relative_distance(folded.tensors, one.tensors), 1e-3);
  }
}

// gpt-oss's experts are stored inputs first, with biases, one of which a single rank of an expert
// adds, and attention has sinks.
TEST(ExpertLayouts, BiasesAndSinksFollowOneRank) {
  const Overrides gpt_oss{"model.architecture=gpt_oss", "model.sliding_window=7",
                          "model.window_layers=[0, 2]",
                          R"(model.moe={"num_experts": 8, "router_topk": 2,
                                        "aux_loss_coeff": 0.02})"};
  const auto run = [&](const Layout& layout, const Overrides& more) {
    return outcome("llama", layout, experts + gpt_oss + more);
  };
  const Outcome plain = run({2, 1, 1}, parallel(2)), one = run({1, 1, 1}, {});
  expect_same_bits(run({2, 1, 2, 2}, parallel(2) + Overrides{"pipeline.schedule=dualpipev"}),
                   plain);
  expect_same_bits(
      run({2, 1, 2}, parallel(2) + Overrides{"zero_optimization.stage=3",
                                             "zero_optimization.reduce_each_micro_batch=false",
                                             "activation_checkpointing.granularity=full"}),
      plain);
  expect_same_bits(run({2, 1, 1}, parallel(1) + each_micro_batch),
                   run({2, 1, 1}, parallel(2) + each_micro_batch));
  for (const auto& [layout, more] :
       {std::pair(Layout{2, 2, 1}, parallel(2, 2)),
        {Layout{2, 2, 1}, parallel(4, 1)},
        {Layout{1, 4, 1}, parallel(1, 4) + Overrides{"parallel.sequence_parallel=true"}}}) {
    SCOPED_TRACE(name_of(layout));
    const Outcome other = run(layout, more);
    EXPECT_LT(largest_relative_difference(other.losses, one.losses), 1e-5);
    EXPECT_LT(largest_relative_distance(other.tensors, one.tensors), 1e-3);
  }
}

// Before the first update no sum of gradients counts.
TEST(ExpertLayouts, TheFirstLossHasTheSameBitsForEachNumberOfHolders) {
  const Overrides first{"training.train_iters=1"};
  const double loss = of({4, 1, 1}, parallel(1) + first).losses.front();
  EXPECT_EQ(of({4, 1, 1}, parallel(2) + first).losses.front(), loss);
  EXPECT_EQ(of({4, 1, 1}, parallel(4) + first).losses.front(), loss);
}

// Tokens beyond an expert's capacity are the same ones wherever its experts and tokens lie.
TEST(ExpertLayouts, DroppedTokensFollowOneRank) {
  const Overrides capacity{"model.moe.expert_capacity_factor=1"};
  const Outcome one = of({1, 1, 1}, capacity);
  EXPECT_NE(one.losses, of({1, 1, 1}, {}).losses);
  for (const auto& [layout, expert] :
       {std::pair(Layout{2, 1, 1}, 2), {Layout{1, 2, 1}, 2}, {Layout{1, 2, 2}, 1}}) {
    SCOPED_TRACE(name_of(layout));
    EXPECT_LT(
        largest_relative_difference(of(layout, parallel(expert) + capacity).losses, one.losses),
        1e-5);
  }
}

// A stage of an asynchronous schedule exchanges tokens in the order of its micro-batches.
TEST(ExpertLayouts, AsynchronousSchedulesTrain) {
  for (const char* schedule : {"pipedream_2bw", "pipedream"}) {
    SCOPED_TRACE(schedule);
    const Overrides kind{std::string("pipeline.schedule=") + schedule};
    const Overrides unclipped =
        kind[0].ends_with("pipedream") ? Overrides{"gradient_clipping=0"} : Overrides{};
    const auto trained = [&](const Overrides& more) {
      return train(seeded_config("llama", ::testing::TempDir() + "expert_layouts_log",
                                 experts + overrides_of({2, 1, 2}) + kind + unclipped + more +
                                     Overrides{"logging.overwrite=true"}));
    };
    const std::vector<double> one = losses_of(trained(parallel(1)));
    EXPECT_LT(largest_relative_difference(losses_of(trained(parallel(2))), one), 1e-5);
  }
}

TEST(ExpertLayouts, TheCommittedConfigTrains) {
  const TempDir dir;
  const std::string text = dir / "text.txt";
  write_file_atomic(text, std::string(20'000, 'a') + std::string(20'000, 'b'));
  const Config config = load_config(source_dir() + "/configs/axis_expert.json",
                                    {"data.train=[{\"path\": \"" + text + "\"}]",
                                     "data.cache_path=" + (dir / "cache"),
                                     "logging.dir=" + (dir / "log"), "training.train_iters=6",
                                     "training.eval_interval=0", "logging.tensorboard=false"},
                                    {.constraints = built_in_constraints()})
                            .config;
  const std::vector<double> losses = losses_of(train(config));
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace trident::testing
