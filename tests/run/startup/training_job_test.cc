// A program runs a training job, as `trident train` does.
#include "run/startup/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "report/run_about.h"
#include "run/folders/run_folder.h"
#include "run/startup/job_config.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ConfigRequest request_in(const TempDir& dir, const Overrides& more = {}) {
  const std::string golden = source_dir() + "/tests/golden/gpt2";
  return {.path = golden + "/config.json",
          .set = Overrides{"data.train.0.path=" + golden + "/tokens",
                           "checkpoint.load=" + golden + "/model",
                           "checkpoint.save=" + (dir / "weights"), "logging.dir=" + (dir / "run"),
                           "logging.tensorboard=false", "training.train_iters=2",
                           "scheduler.warmup_iters=1", "logging.dump_gradients_at=[]",
                           "parallel.data_parallel_size=2"} +
                 more};
}

TEST(TrainingJob, TrainsSavesAndReportsAsTheCommandDoes) {
  const TempDir dir;
  const Launch launch;
  const LoadedConfig loaded = load(request_in(dir), launch);
  const TrainingJob job = prepare_job(loaded, launch);
  EXPECT_FALSE(std::filesystem::exists(dir / "run"));  // the job writes no file before it runs
  EXPECT_THAT(opening_text(job), StartsWith("gpt2: 2 ranks ("));
  const ProductRate rate = measure_product_rate(job);
  EXPECT_GT(rate.rate.total(), 0);

  std::vector<std::string> order;
  JobHooks hooks{.rate = rate,
                 .command = "a test",
                 .on_saved = [&] { order.push_back("saved"); },
                 .on_summary =
                     [&](const TrainingSummary& summary) {
                       order.push_back("summary");
                       EXPECT_THAT(closing_text(job, summary), HasSubstr("loss"));
                     }};
  const TrainingSummary summary = run_job(job, hooks);
  EXPECT_EQ(summary.history.size(), 2U);
  EXPECT_GT(summary.history.back().mfu, 0);
  EXPECT_EQ(order, (std::vector<std::string>{"saved", "summary"}));
  EXPECT_TRUE(std::filesystem::exists(dir / "weights/model.safetensors"));
}

// Steps are faster than all measured rates: no MFU is above 1, and the run has one rate.
TEST(TrainingJob, TheMachinesRateIsAtLeastThatOfTheFastestStep) {
  const TempDir dir;
  const Launch launch;
  const TrainingJob job = prepare_job(load(request_in(dir), launch), launch);
  const JobRate known{.machines = {{"a machine", 2}}, .best = {{"a machine", 1.0}}};
  const TrainingSummary summary = run_job(job, {.rate = {known}});
  for (const IterationMetrics& m : summary.history) {
    EXPECT_GT(m.mfu, 0);
    EXPECT_LE(m.mfu, 1);
  }
  const RunAbout about = about_of(slurp(dir / "run/run.json"));
  EXPECT_EQ(about.best_rates, summary.rate.best);
  EXPECT_EQ(about.starts.front().machines, (std::map<std::string, double>{{"a machine", 2}}));
  double fastest = 0;
  for (const IterationMetrics& m : summary.history) fastest = std::max(fastest, 1e12 * m.tflops);
  EXPECT_NEAR(summary.rate.total() / fastest, 1, 1e-12);
  const auto result = closing_json(job, summary);
  EXPECT_EQ(result["product_rate"].get<double>(), summary.rate.total());
  EXPECT_LE(result["mfu"].get<double>(), 1);
  const IterationMetrics& second = summary.history.back();
  EXPECT_NEAR(result["tokens_per_second"].get<double>() / second.tokens_per_second, 1, 1e-12);
}

TEST(TrainingJob, HoldsItsFoldersWhileItRuns) {
  const TempDir dir;
  const Launch launch;
  const Overrides again{"logging.overwrite=true", "checkpoint.overwrite=true"};
  const LoadedConfig loaded = load(request_in(dir, again), launch);
  const TrainingJob job = prepare_job(loaded, launch);
  const auto taken = [&] {
    try {
      prepare_job(loaded, launch);
      return std::string();
    } catch (const RequestError& error) {
      return std::string(error.what());
    }
  };
  run_job(job, {.command = "the first one",
                .on_saved = [&] { EXPECT_THAT(taken(), HasSubstr("the first one")); }});
  EXPECT_EQ(taken(), "");
}

TEST(TrainingJob, IsRefusedWithAllProblemsTogether) {
  const TempDir dir;
  const Launch launch;
  LoadedConfig loaded = load(request_in(dir), launch);
  loaded.config.checkpoint.load = dir / "nowhere";
  loaded.config.data.train[0].path = dir / "nothing";
  try {
    prepare_job(loaded, launch);
    ADD_FAILURE() << "neither weights nor data are there";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.problems().size(), 2U) << error.what();
  }
}

// transformers' config.json can't say how routers are balanced; a checkpoint's own config can.
TEST(TrainingJob, ARunThatLoadsACheckpointBalancesItsExpertsAsTheRunThatSavedIt) {
  const TempDir dir;
  const Launch launch;
  nlohmann::json config = nlohmann::json::parse(R"({
    "model": {"architecture": "mixtral", "num_layers": 1, "hidden_size": 16,
              "num_attention_heads": 2, "ffn_hidden_size": 16, "vocab_size": 515,
              "moe": {"num_experts": 4, "aux_loss_coeff": 0.5, "z_loss_coeff": 0.25,
                      "router_load_balancing_type": "seq_aux_loss"}},
    "batch": {"global_batch_size": 2},
    "data": {"sequence_length": 16},
    "training": {"train_iters": 3},
    "checkpoint": {"save_interval": 2},
    "logging": {"tensorboard": false, "trace": false},
    "runtime": {"device": "cpu", "threads_per_rank": 1}})");
  config["data"]["train"] = {{{"path", source_dir() + "/tests/golden/gpt2/tokens"}}};
  const auto place = [&](const char* name) {
    config["checkpoint"]["save"] = dir / (std::string("w-") + name);
    config["logging"]["dir"] = dir / name;
  };
  const auto run = [&] {
    const LoadedConfig loaded = load({.path = "config", .text = config.dump()}, launch);
    const MoeConfig& moe = loaded.config.model.moe;
    EXPECT_EQ(moe.router_load_balancing_type, "seq_aux_loss");
    EXPECT_EQ(moe.aux_loss_coeff, 0.5);
    EXPECT_EQ(moe.z_loss_coeff, 0.25);
    const TrainingJob job = prepare_job(loaded, launch);
    return run_job(job, {});
  };
  place("uninterrupted");
  const TrainingSummary uninterrupted = run();
  ASSERT_EQ(uninterrupted.history.size(), 3U);
  place("continued");
  config["checkpoint"]["load"] = dir / "w-uninterrupted/iteration-2";
  config.erase("model");
  const TrainingSummary continued = run();
  ASSERT_EQ(continued.history.size(), 1U);
  EXPECT_EQ(continued.history[0].iteration, 3);
  EXPECT_EQ(continued.history[0].loss, uninterrupted.history[2].loss);
  EXPECT_EQ(continued.history[0].grad_norm, uninterrupted.history[2].grad_norm);
}

// If GPUs were chosen and there are fewer than tasks, Slurm gives each task GPUs of its own.
TEST(Launch, RanksShareTheGpusThatTheirProcessSees) {
  Launch launch;
  EXPECT_EQ(ranks_on_gpus(launch, 8, 2), 8);
  launch.mpi = true;
  launch.local_ranks = 4;
  EXPECT_EQ(ranks_on_gpus(launch, 8, 1), 4);
  launch.gpus_chosen = true;
  EXPECT_EQ(ranks_on_gpus(launch, 8, 1), 1);
  EXPECT_EQ(ranks_on_gpus(launch, 8, 4), 4);
  EXPECT_EQ(ranks_on_gpus(launch, 8, 0), 4);
}

}  // namespace
}  // namespace trident::testing
