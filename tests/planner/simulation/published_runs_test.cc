// Compares predictions with the step times of papers and of one GPU.
#include <gmock/gmock.h>

#include <cmath>

#include "engine/setup/from_config.h"
#include "planner/simulation/step_simulation.h"
#include "tests/planner/planner_machines.h"

namespace trident::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// The TFLOP/s of a GPU by the formula of Narayanan 2021, which includes recomputation.
double tflops(const PublishedRun& run, double seconds) {
  const double h = run.hidden, l = run.layers;
  return 96.0 * run.batch * 2048 * l * h * h * (1 + 2048 / (6 * h) + 51200 / (16 * l * h)) /
         seconds / run.devices / 1e12;
}

// Collects the errors of predictions against published times.
class Errors {
 public:
  void add(double predicted, double published) {
    const double error = std::abs(predicted / published - 1);
    sum_ += error, largest_ = std::max(largest_, error), ++count_;
    SCOPED_TRACE(count_);
    EXPECT_LT(error, 0.10) << predicted << " for " << published;
  }
  double mean() const { return sum_ / count_; }
  double largest() const { return largest_; }

 private:
  double sum_ = 0, largest_ = 0;
  int count_ = 0;
};

// Table 1 of Narayanan 2021. The machine's efficiencies are fitted to the rows with 1.7 and 39
// billion parameters and to one row of Korthikanti's table.
TEST(PublishedRuns, ComeNearTheStepsOfNarayanan2021) {
  Errors errors;
  const auto compare = [&](const PublishedRun& run, double published) {
    errors.add(tflops(run, simulated(run).seconds), published);
  };
  compare({24, 2304, 24, 1, 1, 1, 32, 512, 16}, 137);
  compare({30, 3072, 32, 2, 1, 1, 64, 512, 16}, 138);
  compare({36, 4096, 32, 4, 1, 1, 128, 512, 16}, 142);
  compare({40, 6144, 48, 8, 1, 1, 256, 1024, 8}, 135);
  compare(gpt_39b, 138);
  compare({60, 10240, 80, 8, 4, 3, 1024, 1792, 2}, 140);
  compare({80, 12288, 96, 8, 8, 2, 1536, 2304, 2}, 148);
  compare(gpt_1t, 163);
  if (!sanitized) {  // these runs take long
    compare({96, 16384, 128, 8, 16, 2, 1920, 2160, 1}, 155);
    compare(gpt_530b, 163);
  }
  EXPECT_LT(errors.mean(), 0.035);
  EXPECT_LT(errors.largest(), 0.095);
}

// configs/machines/h200.json contains the kernels that one step of each of these runs takes on an
// H200. The times are from `bench step` on the same machine and day.
TEST(PublishedRuns, ComeNearTheStepsOfAnH200) {
  for (const auto& [name, milliseconds] :
       {std::pair("gpt2_124m", 56.8), std::pair("gpt2_1.5b", 319.5),
        std::pair("llama_1b", 202.5)}) {
    const Config config = load_config(fmt::format("{}/configs/gpu/{}.json", source_dir(), name), {},
                                      {.constraints = built_in_constraints()})
                              .config;
    const SimulatedStep step =
        simulate_step(config, *architecture_of(config), machine_named("h200"),
                      Assumptions::of(config.zero_optimization, config.parallel));
    EXPECT_NEAR(1e3 * step.seconds / milliseconds, 1, 0.05) << name;
  }
}

// Table 2 of Narayanan 2021, the rows with 3D parallelism: 175 billion parameters on a growing
// number of devices.
TEST(PublishedRuns, ComeNearTheScalingOfNarayanan2021) {
  const auto predicted = [](int devices) {
    const PublishedRun run{96, 12288, 96, 8, 12, 1, devices, 1536, 1};
    return tflops(run, simulated(run).seconds);
  };
  EXPECT_NEAR(predicted(384) / 153, 1, 0.03);
  EXPECT_NEAR(predicted(768) / 149, 1, 0.03);
  EXPECT_NEAR(predicted(1536) / 141, 1, 0.03);
}

// The rows of the same table for DeepSpeed's ZeRO-3 without model parallelism. None of them is
// fitted.
TEST(PublishedRuns, ComeNearTheZero3OfNarayanan2021) {
  for (const auto& [devices, micro, published] :
       {std::tuple(384, 4, 144.0), std::tuple(768, 2, 88.0), std::tuple(1536, 1, 44.0)}) {
    const PublishedRun run{96, 12288, 96, 1, 1, 1, devices, 1536, micro};
    Config config = config_of(run);
    config.zero_optimization.stage = 3;
    config.zero_optimization.overlap_comm = true;
    Assumptions assumptions = Assumptions::of(config.zero_optimization, config.parallel);
    assumptions.assume("deepspeed_2021");
    const double predicted = tflops(run, simulated(config, dgx_a100(), assumptions).seconds);
    EXPECT_NEAR(predicted / published, 1, 0.15) << devices << " devices: " << predicted;
  }
}

// Table 5 of Korthikanti 2022, with full and selective recomputation; the row of 22 billion with
// full recomputation is fitted.
TEST(PublishedRuns, ComeNearTheStepsOfKorthikanti2022) {
  Errors errors;
  const auto compare = [&](PublishedRun run, double full, double selective) {
    const auto seconds = [&] {
      const Config config = config_of(run);
      Assumptions assumptions = Assumptions::of(config.zero_optimization, config.parallel);
      assumptions.assume("megatron_2022");
      return simulated(config, dgx_a100(), assumptions).seconds;
    };
    run.gradients = "fp32";
    errors.add(seconds(), full);
    run.recomputation = "selective";
    run.sequence_parallel = true;
    errors.add(seconds(), selective);
  };
  compare(gpt_22b, 1.42, 1.10);
  if (sanitized) return;
  compare({96, 12288, 96, 8, 8, 3, 64, 64, 1}, 18.13, 13.75);
  compare({105, 20480, 128, 8, 35, 3, 280, 280, 1}, 49.05, 37.83);
  compare({128, 25600, 160, 8, 64, 1, 512, 512, 1}, 94.42, 71.49);
  EXPECT_LT(errors.mean(), 0.03);
  EXPECT_LT(errors.largest(), 0.06);
}

// The machine's products are fitted to the first run: Nemotron-4 15B, whose two matrices of 24576
// are replaced by three of 16384, with as many FLOPs.
TEST(PublishedRuns, ComeNearTheStepsOfH100s) {
  const auto seconds = [](const Config& config) {
    return simulated(config, machine_named("dgx_h100"),
                     Assumptions::of(config.zero_optimization, config.parallel))
        .seconds;
  };
  const double nemotron = seconds(h100_config(
      R"("architecture": "llama", "num_layers": 32, "hidden_size": 6144, "ffn_hidden_size": 16384,
         "num_attention_heads": 48, "num_query_groups": 8, "vocab_size": 256000)",
      R"("data_parallel_size": 8, "tensor_model_parallel_size": 2)", "1f1b", 64, 2, 4096));
  EXPECT_NEAR(nemotron / 2.66, 1, 0.02);
  const auto gpt_175b = [&](int data) {
    return seconds(h100_config(
        R"("num_layers": 96, "hidden_size": 12288, "num_attention_heads": 96, "vocab_size": 51200)",
        fmt::format(R"("data_parallel_size": {}, "tensor_model_parallel_size": 4,
                       "pipeline_model_parallel_size": 8,
                       "virtual_pipeline_model_parallel_size": 6)",
                    data),
        "interleaved_1f1b", 64 * data, 1, 2048));
  };
  const double small = gpt_175b(4), large = gpt_175b(64);
  EXPECT_NEAR(small / 8.31, 1, 0.07);
  EXPECT_NEAR(large / 8.49, 1, 0.07);
  EXPECT_NEAR(large / small, 8.49 / 8.31, 0.015);
}

}  // namespace
}  // namespace trident::testing
