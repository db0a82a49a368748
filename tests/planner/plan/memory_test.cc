// Compares ledgers with the papers' formulas, and tests the search for settings that fit a given
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "planner/plan/fit.h"
#include "planner/plan/plan.h"
#include "planner/plan/planned_pipeline.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

std::int64_t of(const Ledger::Figures& figures, Category category) {
  return figures.peak[static_cast<std::size_t>(category)];
}

// Returns the peaks of two steps, on the rank with the highest peak.
Ledger::Figures measure(const Config& config) {
  Ledger::Figures largest;
  std::mutex mutex;
  on_ranks(config, transport_options(config), [&](Rank& own) {
    own.model.context().ledger().reset_peaks();
    for (int k = 0; k < 2; ++k) own.stepper.train(synthetic_batches(own.model, k), 1e-3);
    const Ledger::Figures figures = own.model.context().ledger().figures();
    const std::lock_guard lock(mutex);
    largest.peak_total = std::max(largest.peak_total, figures.peak_total);
    for (std::size_t c = 0; c < figures.peak.size(); ++c) {
      largest.peak[c] = std::max(largest.peak[c], figures.peak[c]);
    }
  });
  return largest;
}

// The formulas of Rajbhandari 2019, with N ranks and 2, 4 or 16 bytes a parameter for replicated
// states.
TEST(ModelStates, AreWithin2PercentOfTheFormulasForOneTo16Ranks) {
  struct Precision {
    Overrides overrides;
    double weight, gradient, optimizer;  // bytes a parameter
  };
  const std::vector<Precision> precisions{
      {{"precision.dtype=bf16", "precision.grad_accum_dtype=bf16"}, 2, 2, 12},
      {{"precision.dtype=bf16"}, 2, 4, 12},
      {{"precision.dtype=fp16"}, 2, 4, 12},
      {{}, 4, 4, 8}};
  const TempDir dir;
  for (const int ranks : {1, 2, 3, 8, 16}) {
    for (const Precision& p : precisions) {
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, stage " + std::to_string(stage) +
                     (p.overrides.empty() ? "" : " " + p.overrides.back()));
        const Config config = seeded_config(
            "llama", dir.path(),
            p.overrides + overrides_of({ranks, 1, 1}) +
                Overrides{"model.num_layers=2", "model.hidden_size=128", "model.vocab_size=512",
                          "model.num_attention_heads=4", "model.num_query_groups=2",
                          "model.ffn_hidden_size=384", "batch.micro_batch_size=1",
                          "batch.gradient_accumulation_steps=1",
                          "batch.global_batch_size=" + std::to_string(ranks),
                          "zero_optimization.stage=" + std::to_string(stage),
                          "zero_optimization.stage3_param_persistence_threshold=0"});
        const double parameters = static_cast<double>(
            make_plan(config, *built_in_architectures().at("llama")).parameters);
        const Ledger::Figures figures = measure(config);
        const double held =
            static_cast<double>(of(figures, Category::parameter) + of(figures, Category::gradient) +
                                of(figures, Category::optimizer));
        const double n = ranks;
        const double formula = p.weight / (stage == 3 ? n : 1) + p.gradient / (stage >= 2 ? n : 1) +
                               p.optimizer / (stage >= 1 ? n : 1);
        EXPECT_NEAR(held / (formula * parameters), 1, 0.02);
      }
    }
  }
}

TEST(ModelStates, ThePlanKnowsThePublishedSizes) {
  const auto states = [](const Config& config) {
    const Plan plan = make_plan(config, *built_in_architectures().at(config.model.architecture));
    const auto& bytes = plan.ranks.front().bytes;
    return std::pair(
        static_cast<double>(plan.parameters),
        static_cast<double>(bytes.at("parameter") + bytes.at("gradient") + bytes.at("optimizer")));
  };
  const std::string root = source_dir();
  const auto config = [&](const Overrides& overrides) {
    return load_config(
               root + "/configs/gpt_1t.json",
               Overrides{"parallel.tensor_model_parallel_size=1",
                         "parallel.pipeline_model_parallel_size=1",
                         "parallel.sequence_parallel=false", "precision.dtype=bf16",
                         "precision.grad_accum_dtype=bf16", "batch.micro_batch_size=1",
                         "batch.gradient_accumulation_steps=1", "model.tie_word_embeddings=false"} +
                   overrides,
               {.constraints = built_in_constraints()})
        .config;
  };
  // 7 billion parameters: 112 GB.
  const auto [seven, seven_bytes] =
      states(config({"model.num_layers=34", "model.hidden_size=4096",
                     "model.num_attention_heads=32", "model.ffn_hidden_size=16384",
                     "parallel.data_parallel_size=1", "batch.global_batch_size=1"}));
  EXPECT_NEAR(seven * 1e-9, 7, 0.4);
  EXPECT_NEAR(seven_bytes / (16 * seven), 1, 1e-3);
  // 1 trillion parameters: 16 TB, of which a rank holds a 1,024th.
  const Overrides wide{"parallel.data_parallel_size=1024", "batch.global_batch_size=1024",
                       "zero_optimization.stage3_param_persistence_threshold=0"};
  const auto [trillion, trillion_bytes] = states(config(wide));
  EXPECT_NEAR(trillion * 1e-12, 1, 0.02);
  EXPECT_NEAR(trillion_bytes * 1e-12 / (16 * trillion * 1e-12), 1, 1e-3);
  const auto [same, part] = states(config(wide + Overrides{"zero_optimization.stage=3"}));
  EXPECT_NEAR(part / (trillion_bytes / 1024), 1, 1e-3);
}

// The formulas of Korthikanti 2022 without dropout's masks, which this program computes again, and
// without attention scores. In bytes: s·b·h (34 - 2) in 16 bits, and fp32 statistics of norms and
// softmax.
TEST(Activations, AreWithin5PercentOfTheFormulasForEachSetting) {
  const TempDir dir;
  const double b = 2, s = 64, h = 64, a = 4;
  for (const char* dtype : {"bf16", "fp32"}) {
    for (const int t : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        if (sequence && t == 1) continue;
        for (const std::string granularity : {"none", "selective", "full"}) {
          SCOPED_TRACE(std::string(dtype) + " t " + std::to_string(t) +
                       (sequence ? " sequence parallel " : " ") + granularity);
          const auto activations = [&](int layers) {
            const Config config = seeded_config(
                "gpt2", dir.path(),
                overrides_of({1, t, 1}) +
                    Overrides{
                        "model.num_layers=" + std::to_string(layers), "model.hidden_size=64",
                        "model.num_attention_heads=4", "model.ffn_hidden_size=256",
                        "model.max_position_embeddings=64", "data.sequence_length=64",
                        "batch.global_batch_size=2", "batch.micro_batch_size=2",
                        std::string("precision.dtype=") + dtype,
                        std::string("parallel.sequence_parallel=") + (sequence ? "true" : "false"),
                        "activation_checkpointing.granularity=" + granularity});
            return static_cast<double>(of(measure(config), Category::activation));
          };
          const double layer = (activations(8) - activations(4)) / 4;
          const double e = std::string(dtype) == "fp32" ? 4 : 2;
          const double d = sequence ? t : 1;  // divides the activations between the linear layers
          double formula = e * s * b * h;     // full: the layer's input
          if (granularity == "full") {
            formula /= d;
          } else {
            const bool selective = granularity == "selective";
            // The inputs of the two norms, and the inputs of the column-parallel layers (gathered
            // if they are kept).
            const double between = 2 / d + (sequence && !selective ? 2 : 2 / d);
            // q, k, v, the core's output, and the input and output of GELU.
            const double inside = (3 + (selective ? 0 : 1) + 8) / static_cast<double>(t);
            formula *= between + inside;
            formula += 4 * s * b * (4 / d);  // mean and deviation of two norms
            if (!selective) formula += 4 * s * b * a / t;
          }
          EXPECT_NEAR(layer / formula, 1, 0.05);
        }
      }
    }
  }
}

TEST(Fit, TheLargestMicroBatchFitsAndTheNextDoesNot) {
  const TempDir dir;
  const auto held = built_in_architectures().at("gpt2");
  const Architecture& architecture = *held;
  const auto sized = [&](const std::string& size, const Overrides& more = {}) {
    return seeded_config("gpt2", dir.path(),
                         Overrides{"batch.global_batch_size=48", "batch.micro_batch_size=" + size} +
                             overrides_of({2, 1, 1}) + more);
  };
  const auto peak = [&](const Config& config) {
    return plan_pipeline(config, architecture, schedule_of(config)).front().collecting.peak_total +
           library_bytes(config);
  };
  const Config config = sized("1");
  for (const char* size : {"1", "3", "8", "24"}) {
    const std::int64_t exact = peak(sized(size));
    EXPECT_EQ(largest_micro_batch(config, architecture, exact), std::stoll(size));
  }
  EXPECT_LT(largest_micro_batch(config, architecture, peak(sized("8")) - 1), 8);
  EXPECT_EQ(largest_micro_batch(config, architecture, peak(config) - 1), std::nullopt);
  // The proposed changes fit.
  const Config large = sized("24");
  const MemoryFit fit = fit_memory(large, architecture, peak(config) * 9 / 10);
  EXPECT_FALSE(fit.fits());
  ASSERT_FALSE(fit.changes.empty());
  for (const FittingChange& change : fit.changes) {
    SCOPED_TRACE(::testing::PrintToString(change.set));
    const bool sizes = change.set.back().starts_with("batch.");
    const Config changed = sized(sizes ? "1" : "24", change.set);
    EXPECT_LE(peak(changed), fit.limit);
    EXPECT_EQ(peak(changed), change.peak_bytes);
  }
  EXPECT_THAT(fit_text(fit), HasSubstr("too much"));
  EXPECT_THAT(fit_json(fit).dump(2), HasSubstr("\"fits\": false"));
}

// With one micro-batch, no full gradients are kept between micro-batches, so the largest size takes
// less memory than some smaller ones. A value that the config sets itself doesn't invalidate a
// proposal.
TEST(Fit, LargerSizesMayTakeLessAndProposalsHoldAsTheyAreWritten) {
  const TempDir dir;
  const auto held = built_in_architectures().at("gpt2");
  const Architecture& architecture = *held;
  const auto sized = [&](const std::string& size, const Overrides& more = {}) {
    return seeded_config(
        "gpt2", dir.path(),
        overrides_of({2, 1, 1}) +
            Overrides{"batch.global_batch_size=24", "batch.micro_batch_size=" + size,
                      "batch.gradient_accumulation_steps=" + std::to_string(12 / std::stoi(size)),
                      "model.hidden_size=192", "model.ffn_hidden_size=768",
                      "data.sequence_length=8", "zero_optimization.stage=2",
                      "zero_optimization.reduce_each_micro_batch=false"} +
            more);
  };
  const auto peak = [&](const Config& config) {
    return plan_pipeline(config, architecture, schedule_of(config)).front().collecting.peak_total +
           library_bytes(config);
  };
  ASSERT_LT(peak(sized("12")), peak(sized("6")));
  EXPECT_EQ(largest_micro_batch(sized("1"), architecture, peak(sized("12"))), 12);
  const std::int64_t limit = peak(sized("12")) * 95 / 100;
  const MemoryFit fit = fit_memory(sized("12"), architecture, limit);
  ASSERT_FALSE(fit.changes.empty());
  for (const FittingChange& change : fit.changes) {
    SCOPED_TRACE(::testing::PrintToString(change.set));
    const Config changed = sized("12", change.set);
    EXPECT_LE(peak(changed), limit);
    EXPECT_EQ(peak(changed), change.peak_bytes);
  }
}

// ZeRO stage 3, which takes the least memory, doesn't support weight versions.
TEST(Fit, AsynchronousSchedulesAreOfferedMoreRanksToo) {
  const TempDir dir;
  const Config config = seeded_config(
      "gpt2", dir.path(),
      overrides_of({2, 1, 2}) + Overrides{"pipeline.schedule=pipedream_2bw",
                                          "model.tie_word_embeddings=false", "gradient_clipping=0",
                                          "model.hidden_size=192", "model.ffn_hidden_size=768"});
  const auto held = built_in_architectures().at("gpt2");
  const std::int64_t library = library_bytes(config);
  const std::int64_t peak = *planned_peak(config, *held) - library;
  const MemoryFit fit = fit_memory(config, *held, library + peak / 3);
  ASSERT_FALSE(fit.changes.empty());
  EXPECT_GT(fit.changes.front().world_size, config.world_size());
}

TEST(Fit, ReadsAmountsOfMemoryWithUnits) {
  EXPECT_EQ(parse_memory("24GiB"), std::int64_t{24} << 30);
  EXPECT_EQ(parse_memory("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(parse_memory("4096B"), 4096);
  EXPECT_EQ(parse_memory("2KB"), 2000);
  EXPECT_EQ(parse_memory("2 KiB"), 2048);
  for (const char* wrong : {"", "GiB", "24gigs", "-1GB", "0B", "nan", "1e30TB", "24 GiB x", "24"}) {
    EXPECT_THROW(parse_memory(wrong), RequestError) << wrong;
  }
}

}  // namespace
}  // namespace trident::testing
