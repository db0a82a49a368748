// The other commands as black boxes: report, bench, plan and others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/cuda_device.h"
#include "support/covering.h"
#include "support/source_dir.h"
#include "tests/app/cli.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, JsonReportsAreTheOnlyThingOnStdout) {
  const Outcome plan = run({"plan", "c.json", "--format", "json"});
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.err, IsEmpty());
  const json figures = json::parse(plan.out);
  for (const char* key : {"world_size", "parameters", "flops_per_step", "bubble_ratio", "ranks"}) {
    EXPECT_TRUE(figures.contains(key)) << key;
  }
  const Outcome schema = run({"schema"});
  EXPECT_EQ(schema.code, 0);
  EXPECT_TRUE(json::parse(schema.out).at("properties").contains("zero_optimization"));
  auto arguments = train({});
  arguments.insert(arguments.end(), {"--format", "json"});
  const Outcome trained = run(arguments);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json::parse(trained.out).at("iterations"), 3);
}

TEST_F(CliTest, BenchStepReportsFiguresThatAgree) {
  // The program inherits oneDNN's limit, which holds for its own kernels, too.
  ASSERT_EQ(setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1), 0);
  const Outcome outcome =
      run({"bench", "step", "c.json", "--iterations", "2", "--format", "json", "--set",
           "parallel.pipeline_model_parallel_size=2", "--set", "runtime.threads_per_rank=1"});
  ASSERT_EQ(unsetenv("ONEDNN_MAX_CPU_ISA"), 0);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json r = json::parse(outcome.out);
  EXPECT_EQ(r.at("instructions"), "sse2");
  EXPECT_EQ(r.at("ranks"), 2);
  EXPECT_NEAR(r.at("tokens_per_second").get<double>() * r.at("milliseconds").get<double>(), 64e3,
              1);
  EXPECT_GT(r.at("mfu"), 0.0);
  EXPECT_GT(r.at("product_gflops"), 0.0);
  EXPECT_GT(r.at("model_gflops"), 0.0);
  EXPECT_GT(r.at("peak_rss_bytes"), 0);
  // With two micro-batches on two stages, a rank always waits, however long the stages take.
  EXPECT_GT(r.at("bubble_ratio"), 0.0);
  EXPECT_LT(r.at("bubble_ratio"), 1.0);
}

TEST_F(CliTest, BenchStepBalancesTheRoutingOfExperts) {
  const auto bench = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"bench", "step",     "c.json", "--iterations",
                                       "1",     "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Outcome dense = bench({"--balanced-routing"});
  EXPECT_EQ(dense.code, 2);
  EXPECT_THAT(dense.err, HasSubstr("--balanced-routing: the model has no experts"));
  std::vector<std::string> experts{
      "--set", "model.architecture=mixtral", "--set", "model.ffn_hidden_size=32",
      "--set", "model.moe.num_experts=4",    "--set", "parallel.data_parallel_size=2",
      "--set", "runtime.threads_per_rank=1", "--set", "parallel.expert_model_parallel_size=2"};
  const Outcome plain = bench(experts);
  experts.emplace_back("--balanced-routing");
  const Outcome balanced = bench(experts);
  ASSERT_EQ(plain.code, 0) << plain.err;
  ASSERT_EQ(balanced.code, 0) << balanced.err;
  EXPECT_EQ(json::parse(balanced.out).at("ranks"), 2);
  // Tokens have other experts, so the loss is another.
  EXPECT_NE(json::parse(balanced.out).at("loss"), json::parse(plain.out).at("loss"));
}

TEST_F(CliTest, MachinesGoByNameFromAnyFolder) {
  const Outcome outcome =
      run({"simulate", "c.json", "--machine", "dgx_a100", "--set", "precision.dtype=bf16"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("a prediction for DGX A100"));
  // The best layout for that machine's GPUs, which this machine doesn't have.
  const Outcome chosen = run(
      {"simulate", "c.json", "--machine", "dgx_a100", "--ranks", "4", "--set",
       "precision.dtype=bf16", "--set", "parallel=auto", "--set", "batch.micro_batch_size=null",
       "--set", "batch.gradient_accumulation_steps=null", "--set", "batch.global_batch_size=4"});
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, HasSubstr("on 4 devices"));
  EXPECT_THAT(chosen.err, HasSubstr("4 ranks"));
}

TEST_F(CliTest, AnUnknownMachineIsRefusedWithTheKnownNamesNearestFirst) {
  for (const char* command : {"simulate", "search", "plan"}) {
    expect_refused({command, "c.json", "--machine", "dgx_h10"},
                   {"machine \"dgx_h10\": there is no machine of that name; known by name are "
                    "dgx_h100, dgx_a100, "});
  }
  expect_refused({"simulate", "c.json", "--machine", "h200.json"},
                 {"machine \"h200.json\": there is no such file; known by name are h200, "});
}

// The described machine's devices and the model's memory needn't exist here. `scripts/test --full`
// tests each preset, other runs a few.
TEST_F(CliTest, EveryPresetPlansSimulatesAndIsSearchedWithLittleMemory) {
  const std::vector<std::pair<std::string, std::string>> on_gpus{
      {"llama_3b", "8"},    {"llama_8b", "4"},      {"llama_70b", "64"},
      {"gpt3_175b", "512"}, {"llama_405b", "1024"}, {"deepseek_v3", "2048"}};
  for (const auto& [preset, ranks] : on_gpus) {
    if (!tests_are_full() && preset != "llama_8b") continue;
    SCOPED_TRACE(preset);
    ASSERT_EQ(run({"init", "p.json", "--preset", preset, "--overwrite"}).code, 0);
    const Outcome plan =
        run({"plan", "p.json", "--machine", "dgx_h100", "--ranks", ranks, "--format", "json"});
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_EQ(json::parse(plan.out).at("world_size"), std::stoll(ranks));
    // The machine that the config names gives the same plan.
    if (preset == "llama_8b") {
      const Outcome named = run({"plan", "p.json", "--ranks", ranks, "--format", "json", "--set",
                                 "runtime.machine=dgx_h100"});
      EXPECT_EQ(named.out, plan.out) << named.err;
      const Outcome simulated =
          run({"simulate", "p.json", "--machine", "dgx_h100", "--ranks", ranks});
      EXPECT_EQ(simulated.code, 0) << simulated.err;
      const Outcome searched = run({"search", "p.json", "--machine", "dgx_h100", "--ranks", "2",
                                    "--plans", "1", "--set", "model.num_layers=6"});
      EXPECT_EQ(searched.code, 0) << searched.err;
    }
  }
  for (const char* preset :
       {"bytes", "gpt2_124m", "llama_135m", "gpt2_355m", "gpt2_774m", "llama_1b"}) {
    // This preset measures the machine for 20 s.
    const bool measures = std::string(preset) == "llama_1b";
    if (measures && !tests_are_full()) continue;
    SCOPED_TRACE(preset);
    ASSERT_EQ(run({"init", "p.json", "--preset", preset, "--overwrite"}).code, 0);
    const Outcome plan = run({"plan", "p.json", "--ranks", "2", "--format", "json"});
    // This preset's layout is "auto"; on a small machine no layout fits.
    if (measures && plan.code == 2) {
      EXPECT_THAT(plan.err, HasSubstr("the thriftiest layout takes "));
      continue;
    }
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_GT(json::parse(plan.out).at("parameters"), 0);
  }
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  EXPECT_LT(usage.ru_maxrss, 3'000'000);  // KiB
}

TEST_F(CliTest, MeasurementsOfTheMachineAreKept) {
  const auto plan = [&] {
    return run({"plan", "c.json", "--ranks", "2", "--format", "json", "--set", "parallel=auto",
                "--set", "batch.micro_batch_size=null", "--set",
                "batch.gradient_accumulation_steps=null", "--set", "batch.global_batch_size=4"});
  };
  const Outcome first = plan();
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("for 20 s and 1.86 GiB at most"));
  EXPECT_THAT(first.err, HasSubstr("kept for the next time: "));
  const Outcome second = plan();
  EXPECT_THAT(second.err, HasSubstr("as it was measured before: "));
  EXPECT_EQ(second.out, first.out);
  // A damaged file and a folder that can't be made are no errors.
  for (const auto& entry : std::filesystem::directory_iterator(cache / "trident/machines")) {
    spit(entry.path().string(), "{\"name\": ");
  }
  const Outcome damaged = plan();
  EXPECT_EQ(damaged.code, 0) << damaged.err;
  EXPECT_THAT(damaged.err, HasSubstr("kept for the next time: "));
  spit(cache / "file", "");
  setenv("XDG_CACHE_HOME", (cache / "file").c_str(), 1);
  const Outcome nowhere = plan();
  EXPECT_EQ(nowhere.code, 0) << nowhere.err;
  EXPECT_THAT(nowhere.err, HasSubstr("not kept for the next time: "));
}

TEST_F(CliTest, AutoLayoutIsChosenPrintedAndTrained) {
  const auto asked = [&](std::vector<std::string> more) {
    std::vector<std::string> command =
        train({"parallel=auto", "batch.micro_batch_size=null",
               "batch.gradient_accumulation_steps=null", "batch.global_batch_size=4"});
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const Outcome outcome = run(asked({"--ranks", "2"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("measuring this machine"));
  EXPECT_THAT(outcome.out, HasSubstr("predictions for "));
  EXPECT_THAT(outcome.out, HasSubstr("2 ranks"));
  const json ran = json::parse(slurp(dir / "run/config.json"));
  const json& parallel = ran.at("parallel");
  EXPECT_EQ(parallel.at("data_parallel_size").get<int>() *
                parallel.at("tensor_model_parallel_size").get<int>() *
                parallel.at("pipeline_model_parallel_size").get<int>(),
            2);
  EXPECT_EQ(ran.at("batch").at("global_batch_size"), 4);
  // The config that the run writes is complete and leaves no choice.
  const Outcome again = run({"train", "run/config.json", "--dry-run", "--set",
                             "logging.overwrite=true", "--set", "checkpoint.overwrite=true"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("parallel"), parallel);
  EXPECT_THAT(again.err, Not(HasSubstr("predictions")));

  // Standard output contains only the document.
  const Outcome dry = run(asked({"--ranks", "2", "--dry-run", "--set", "logging.dir=other", "--set",
                                 "checkpoint.save=saved"}));
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_TRUE(json::parse(dry.out).contains("parallel"));
  EXPECT_THAT(dry.err, HasSubstr("predictions for "));
}

TEST_F(CliTest, APretendedRankReportsItsKernelsAndMemory) {
  std::vector<std::string> command{"train", "c.json", "--pretend-world", "64"};
  for (const char* set : {"parallel.tensor_model_parallel_size=2", "parallel.data_parallel_size=32",
                          "batch.global_batch_size=64", "batch.micro_batch_size=1"}) {
    command.insert(command.end(), {"--set", set});
  }
  command.emplace_back("--rank");
  const auto pretend = [&](std::vector<std::string> more) {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const std::vector<std::string> before = names();
  const Outcome outcome = pretend({"37", "--format", "json", "--iterations", "1"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json r = json::parse(outcome.out);
  EXPECT_EQ(r.at("world_size"), 64);
  for (const char* category : {"parameter", "gradient", "optimizer", "activation"}) {
    EXPECT_EQ(r.at("memory").at(category), r.at("planned_memory").at(category)) << category;
  }
  EXPECT_GT(r.at("kernels_ms"), 0.0);
  EXPECT_GT(r.at("bytes_sent").at("tensor"), 0);
  EXPECT_THAT(pretend({"37", "--iterations", "1"}).out, HasSubstr("rank 37 of 64 by itself"));
  EXPECT_EQ(names(), before) << "something was written";
  // Several ranks' kernels go into one file, whose device then gets this device's name.
  std::filesystem::copy_file(source_dir() + "/configs/machines/dgx_a100.json", dir / "m.json");
  std::string text = slurp(dir / "m.json");
  text.replace(text.find("\"gpu\""), 5, "\"cpu\"");
  std::ofstream(dir / "m.json") << text;
  for (const char* rank : {"37", "36"}) {
    const Outcome entered = pretend({rank, "--iterations", "1", "--machine", "m.json"});
    EXPECT_EQ(entered.code, 0) << entered.err;
  }
  const json machine = json::parse(slurp(dir / "m.json"));
  EXPECT_THAT(machine.at("device").at("name"), HasSubstr("thread"));
  EXPECT_GT(machine.at("device").at("kernels").size(), 10U);
  text = slurp(dir / "m.json");
  const std::string name = machine.at("device").at("name");
  text.replace(text.find(name), name.size(), "Another");
  std::ofstream(dir / "m.json") << text;
  const Outcome refused = pretend({"37", "--iterations", "1", "--machine", "m.json"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--machine: the file is of \"Another\""));
  const Outcome beyond = pretend({"64"});
  EXPECT_EQ(beyond.code, 2);
  EXPECT_THAT(beyond.err, HasSubstr("--rank: 64: the world has ranks 0 to 63"));
  const Outcome other = run({"train", "c.json", "--pretend-world", "3", "--set",
                             "parallel.data_parallel_size=1", "--rank", "0"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("the number of ranks is 3; use 3 here"));
}

// tests/peers/chakra_peer.py reads the exported files.
TEST_F(CliTest, StepsAreExportedRankByRank) {
  const std::string machine = source_dir() + "/configs/machines/dgx_a100.json";
  const auto simulate = [&](std::vector<std::string> more) {
    std::vector<std::string> words{
        "simulate", "c.json", "--machine", machine,
        "--export", "chakra", "--set",     "parallel.data_parallel_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome outcome = simulate({"--out", "step"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("wrote step.RANK.et of 2 ranks, "));
  const json groups = json::parse(slurp(dir / "step.groups.json"));
  EXPECT_THAT(groups.dump(), HasSubstr("[0,1]"));
  EXPECT_GT(std::filesystem::file_size(dir / "step.1.et"), 100U);
  EXPECT_FALSE(std::filesystem::exists(dir / "step.2.et"));
  EXPECT_EQ(simulate({}).code, 2);
  EXPECT_EQ(simulate({"--out", "nowhere/step"}).code, 2);
}

TEST_F(CliTest, BenchGemmAndCollectivesReportEveryCase) {
  const Outcome gemm = run({"bench", "gemm", "--threads", "1", "--format", "json"});
  ASSERT_EQ(gemm.code, 0) << gemm.err;
  int bf16 = 0;
  const json products = json::parse(gemm.out);
  for (const json& p : products.at("products")) {
    bf16 += p.at("dtype") == "bf16";
    EXPECT_GT(p.at("gflops"), 0.0);
  }
  EXPECT_GT(bf16, 0);
  EXPECT_LT(bf16, static_cast<int>(products.at("products").size()));
  const Outcome collectives =
      run({"bench", "collectives", "--ranks", "3", "--max-bytes", "65536", "--format", "json"});
  ASSERT_EQ(collectives.code, 0) << collectives.err;
  const json rows = json::parse(collectives.out);
  for (const char* operation : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}) {
    ASSERT_FALSE(rows.at(operation).empty()) << operation;
    // Three ranks can't share 4 KiB equally.
    const bool shared = std::string(operation).find('_') != std::string::npos &&
                        std::string(operation) != "all_reduce";
    EXPECT_EQ(rows.at(operation)[0].at("bytes"), shared ? 4092 : 4096) << operation;
    for (const json& r : rows.at(operation)) {
      EXPECT_EQ(r.at("ranks"), 3);
      const double bytes = r.at("bytes"), seconds = 1e-6 * r.at("microseconds").get<double>();
      EXPECT_NEAR(r.at("gb_per_second").get<double>(), 1e-9 * bytes / seconds,
                  1e-6 * r.at("gb_per_second").get<double>());
    }
  }
}

TEST_F(CliTest, ThePlanReportsTheLargestMicroBatchAndAutoTakesIt) {
  const auto plan = [&](const char* memory) {
    const Outcome outcome = run({"plan", "c.json", "--format", "json", "--memory", memory});
    const json report = json::parse(outcome.out);
    EXPECT_EQ(outcome.code, report.at("memory").at("fits") ? 0 : 2);
    return report;
  };
  const json large = plan("100GiB");
  EXPECT_TRUE(large.at("memory").at("fits"));
  EXPECT_EQ(large.at("memory").at("largest_micro_batch_size"), 4);
  for (const char* category : {"parameter", "gradient", "optimizer", "activation", "communication",
                               "workspace", "staging", "library"}) {
    EXPECT_TRUE(large.at("ranks").at(0).at("bytes").contains(category)) << category;
  }
  const json small = plan("1MiB");
  EXPECT_FALSE(small.at("memory").at("fits"));
  EXPECT_TRUE(small.at("memory").at("largest_micro_batch_size").is_null());
  auto dry = train({"batch.micro_batch_size=auto"});
  dry.insert(dry.end(), {"--dry-run", "--format", "json"});
  EXPECT_EQ(json::parse(run(dry).out).at("config").at("batch").at("micro_batch_size"), 4);
  // One size remains. An odd number of rows is no reason to refuse all sizes.
  dry = train({"batch.micro_batch_size=auto", "batch.gradient_accumulation_steps=2"});
  dry.insert(dry.end(), {"--dry-run", "--format", "json"});
  EXPECT_EQ(json::parse(run(dry).out).at("config").at("batch").at("micro_batch_size"), 2);
  expect_refused(train({"batch.micro_batch_size=auto", "batch.gradient_accumulation_steps=1",
                        "batch.global_batch_size=2000000"}),
                 {"\"auto\" is 2000000 with gradient_accumulation_steps 1"});
  const json none = json::parse(run({"plan", "c.json", "--format", "json", "--memory", "1MiB",
                                     "--set", "batch.micro_batch_size=auto"})
                                    .out);
  EXPECT_TRUE(none.at("memory").at("largest_micro_batch_size").is_null());
  expect_refused({"plan", "c.json", "--memory", ""}, {"--memory: needs a value, not \"\""});
  expect_refused({"plan", "c.json", "--memory", "24gigs"},
                 {"--memory: \"24gigs\" is not an amount of memory"});
  expect_refused({"plan", "c.json", "--memory", "24"},
                 {"--memory: \"24\" has no unit; say 24GiB, or 24B for bytes"});
}

TEST_F(CliTest, SimulatePredictsAStepOnAMachineFile) {
  const std::string machines = source_dir() + "/configs/machines/";
  const json step = json::parse(run({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
                                     machines + "dgx_a100.json", "--format", "json"})
                                    .out);
  EXPECT_EQ(step.at("prediction"), true);
  EXPECT_EQ(step.at("world_size"), 3072);
  EXPECT_EQ(step.at("fits"), false);  // without recomputation
  for (const char* key : {"step_seconds", "tflops_per_device", "mfu", "hfu", "bubble_ratio",
                          "peak_bytes", "exposed_communication_seconds", "tokens_per_second"}) {
    EXPECT_GT(step.at(key).get<double>(), 0) << key;
  }
  EXPECT_GT(step.at("communication_seconds").at("tensor").get<double>(), 0);
  EXPECT_EQ(step.at("pipeline_ranks").size(), 64U);
  const Outcome text = run({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
                            machines + "dgx_a100.json", "--assume", "transfers=apart"});
  EXPECT_THAT(text.out, HasSubstr("a prediction for DGX A100 80 GB, 8 × 200 Gb/s on 3072 devices; "
                                  "off by 2.6% in the mean of 24 published steps, 8.9% at most"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("e-1")));  // no rounding residues of sums
  EXPECT_EQ(step.at("error").at("most"), 0.089);
  EXPECT_THAT(text.out, HasSubstr("IT DOES NOT FIT"));
  const json slowed = json::parse(
      run({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
           machines + "dgx_a100.json", "--straggler", "1.5:3", "--slow-link", "4", "--tokens",
           "1e12", "--mtbf-hours", "24", "--checkpoint-seconds", "60", "--format", "json"})
          .out);
  EXPECT_GT(slowed.at("step_seconds"), step.at("step_seconds"));
  const json& plan = slowed.at("run");
  EXPECT_NEAR(plan.at("device_hours").get<double>(), plan.at("days").get<double>() * 24 * 3072, 1);
  EXPECT_NEAR(plan.at("goodput").get<double>(), 1 - std::sqrt(2.0 * 60 / 86400), 0.01);  // Young
  expect_refused({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
                  machines + "dgx_a100.json", "--straggler", "2:64"},
                 {"--straggler: place 64: the pipeline has 64 places"});
  expect_refused({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
                  machines + "dgx_a100.json", "--mtbf-hours", "20"},
                 {"--mtbf-hours: needs --checkpoint-seconds"});
  expect_refused({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine", "no_such"},
                 {"there is no machine of that name; known by name are dgx_a100, "});
  expect_refused({"simulate", source_dir() + "/configs/gpt_1t.json", "--machine",
                  machines + "dgx_a100.json", "--assume", "luck=good"},
                 {"--assume: \"luck=good\": needs one of deepspeed_2021, megatron_2021"});
}

TEST_F(CliTest, SearchFindsAConfigForTrain) {
  const std::string machine = source_dir() + "/configs/machines/dgx_a100.json";
  const std::string small = source_dir() + "/configs/gpt2_124m.json", best = dir / "best.json";
  const std::string few = "model.num_layers=4";
  const json found =
      json::parse(run({"search", small, "--machine", machine, "--ranks", "2,4", "--plans", "2",
                       "--format", "json", "--out", best, "--set", few})
                      .out);
  EXPECT_EQ(found.at("prediction"), true);
  ASSERT_GE(found.at("plans").size(), 4U);
  const json& first = found.at("plans").at(0);
  EXPECT_EQ(first.at("ranks"), 2);
  EXPECT_GT(first.at("step_seconds").get<double>(), 0);
  EXPECT_LE(first.at("peak_bytes").get<double>(), found.at("memory_bytes").get<double>());
  EXPECT_EQ(first.at("config"), json::parse(slurp(best)));
  EXPECT_GT(found.at("pruned").at("beaten in time and memory, by its bounds").get<int>(), 0);
  // The key belongs to no layout, and it changes the rounding.
  const json each = json::parse(
      run({"search", small, "--machine", machine, "--ranks", "2", "--plans", "1", "--format",
           "json", "--set", "zero_optimization.reduce_each_micro_batch=true", "--set", few})
          .out);
  EXPECT_EQ(
      each.at("plans").at(0).at("config").at("zero_optimization").at("reduce_each_micro_batch"),
      true);
  const Outcome text =
      run({"search", small, "--machine", machine, "--ranks", "2", "--plans", "2", "--set", few});
  EXPECT_THAT(text.out,
              HasSubstr("predictions for DGX A100 80 GB, 8 × 200 Gb/s, 80.00 GiB a rank"));
  EXPECT_THAT(text.out, HasSubstr("8.9% at most"));
  EXPECT_EQ(found.at("error").at("usual"), 0.026);
  EXPECT_THAT(text.out, HasSubstr("lost: "));
  expect_refused({"search", small, "--machine", machine, "--ranks", "4", "--memory", "100MB"},
                 {"search: nothing fits 95.37 MiB a rank on 4 ranks"});
  expect_refused({"search", small, "--machine", machine, "--memory", "7"}, {"has no unit"});
}

TEST_F(CliTest, AMissingDeviceIsRefusedWithTheReasonAndAutoNamesItsChoice) {
  const GpuSearch gpus = find_gpus();
  if (gpus.count == 0) {
    expect_refused(train({"runtime.device=cuda"}),
                   {"config: /runtime/device: \"cuda\" was asked for, but " + gpus.reason +
                    "; use \"cpu\" or \"auto\""});
    expect_refused({"bench", "gemm", "--device", "cuda"}, {"--device: \"cuda\" was asked for"});
  }
  const Outcome outcome = run(train({"runtime.device=auto"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(gpus.count == 0 ? "device: cpu" : gpu_info(0).name));
  EXPECT_THAT(outcome.out, HasSubstr(gpus.count == 0 ? "(" + gpus.reason + ")" : "sm_"));
}

TEST_F(CliTest, WrongArgumentsAreExitCode2) {
  expect_refused({"trian", "c.json"}, {"there is no command trian"});
  expect_refused({"bench", "gem"}, {"trident bench: there is no command gem; did you mean gemm?"});
  expect_refused({"plan", "c.json", "--memry=1GB"},
                 {"trident plan: there is no option --memry; did you mean --memory?"});
  expect_refused({"train", "c.json", "--bogus"},
                 {"trident train: there is no option --bogus; see trident train --help"});
  expect_refused({"--ranks", "2", "train", "c.json"},
                 {"trident: --ranks goes after the command: trident train --ranks"});
  expect_refused({"plan", "c.json", "d.json"}, {"d.json is one argument too many"});
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("trident "));
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"train"}).code, 2);
  EXPECT_EQ(run({"plan", "c.json", "--format", "xml"}).code, 2);
  EXPECT_EQ(run({"plan", "c.json", "--nonsense"}).code, 2);
  const Outcome help = run({"train", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--dry-run"));
}

}  // namespace
}  // namespace trident::testing
