// Compares plans of randomly drawn layouts with the memory that their training takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "planner/plan/plan.h"
#include "support/covering.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// Draws the same values on every machine, unlike the standard's distributions.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : bits_(seed) {}
  template <class T>
  T of(std::vector<T> choices) {
    return choices[bits_() % choices.size()];
  }
  bool one_in(std::uint64_t n) { return bits_() % n == 0; }

 private:
  std::mt19937_64 bits_;
};

struct Drawn {
  std::string model;
  Overrides set;
  bool several_chunks = false;
};

Overrides batches_and_model(Draw& draw, const std::string& model, int stages, int data) {
  const int micro = draw.of<int>({1, 2}), hidden = draw.of<int>({48, 96});
  const int microbatches = stages * draw.of<int>({2, 3, 4});
  const std::string length = draw.of<std::string>({"17", "30", "64"});
  return {"model.num_layers=" + std::to_string(draw.of<int>({6, 7, 8})),
          "model.hidden_size=" + std::to_string(hidden),
          "model.num_attention_heads=6",
          "model.num_query_groups=" +
              std::string(model == "gpt2" ? "6" : draw.of<std::string>({"3", "6"})),
          "model.ffn_hidden_size=" + std::to_string(2 * hidden),
          "model.max_position_embeddings=64",
          "model.vocab_size=" + draw.of<std::string>({"515", "523"}),
          "model.make_vocab_size_divisible_by=1",
          "model.tie_word_embeddings=" + draw.of<std::string>({"true", "false"}),
          "data.sequence_length=" + length,
          "batch.micro_batch_size=" + std::to_string(micro),
          "batch.gradient_accumulation_steps=null",
          "batch.global_batch_size=" + std::to_string(micro * microbatches * data)};
}

Overrides optimizer(Draw& draw) {
  const std::string type = draw.of<std::string>({"AdamW", "SGD", "Adafactor"});
  Overrides set{"optimizer.type=" + type, "gradient_clipping=" + draw.of<std::string>({"0", "1"})};
  if (type != "AdamW") {
    set = set + Overrides{"optimizer.params.betas=null", "optimizer.params.eps=null"};
  }
  return set;
}

Overrides states(Draw& draw) {
  Overrides set{"zero_optimization.stage=" + draw.of<std::string>({"0", "1", "2", "3"}),
                "precision.dtype=" + draw.of<std::string>({"fp32", "bf16", "fp16"}),
                "activation_checkpointing.granularity=" +
                    draw.of<std::string>({"none", "selective", "full"})};
  const auto sometimes = [&](std::uint64_t n, const Overrides& more) {
    if (draw.one_in(n)) set = set + more;
  };
  sometimes(3, {"zero_optimization.reduce_bucket_size=3000",
                "zero_optimization.allgather_bucket_size=5000"});
  sometimes(3, {"zero_optimization.stage3_param_persistence_threshold=0"});
  sometimes(5, {"zero_optimization.overlap_comm=false"});
  sometimes(
      5, {"zero_optimization.reduce_each_micro_batch=" + draw.of<std::string>({"true", "false"})});
  return set;
}

Drawn drawn(std::uint64_t seed) {
  Draw draw(seed);
  Drawn result{.model = draw.of<std::string>({"gpt2", "llama"})};
  const std::string kind = draw.of<std::string>(
      {"naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2",
       "interleaved_zero_bubble", "zbv", "dualpipev", "pipedream", "pipedream_2bw"});
  result.several_chunks =
      std::ranges::count(std::vector<std::string>{"interleaved_1f1b", "looped_bfs",
                                                  "interleaved_zero_bubble", "zbv", "dualpipev"},
                         kind) > 0;
  Layout layout{.data = draw.of<int>({1, 1, 2, 3}),
                .tensor = draw.of<int>({1, 1, 2, 3}),
                .pipeline = draw.of<int>({2, 3}),
                .chunks = result.several_chunks ? 2 : 1};
  if (layout.ranks() > 9) layout.data = 1;
  result.set = overrides_of(layout) + Overrides{"pipeline.schedule=" + kind} +
               batches_and_model(draw, result.model, layout.pipeline, layout.data) +
               optimizer(draw) + states(draw);
  if (layout.tensor > 1 && draw.one_in(2)) {
    result.set.emplace_back("parallel.sequence_parallel=true");
  }
  return result;
}

// The bytes of the reports that rank 0 collects. Only steps whose report is collected with the next
// step hold them, so steps with clipped gradients don't.
std::int64_t reports_of(const Plan& plan) {
  std::int64_t least = plan.ranks.front().bytes.at("communication");
  for (const PlanRank& rank : plan.ranks) {
    least = std::min(least, rank.bytes.at("communication"));
  }
  return plan.ranks.front().bytes.at("communication") - least;
}

// Returns false if these choices don't go together.
bool expect_bound(const Drawn& d) {
  const TempDir dir;
  std::optional<Config> config;
  try {
    config =
        seeded_config(d.model, dir.path(),
                      d.set + Overrides{"training.train_iters=5", "scheduler.warmup_iters=1",
                                        "training.eval_interval=0", "runtime.threads_per_rank=1"});
    make_plan(*config, *built_in_architectures().at(d.model));
  } catch (const RequestError&) {
    return false;
  }
  const Plan plan = make_plan(*config, *built_in_architectures().at(d.model));
  const auto planned = static_cast<double>(largest_rank(plan).at("total"));
  std::int64_t most = 0;
  for (const IterationMetrics& m : train(*config).history) {
    most = std::max(most, m.peak_memory.at("total"));
  }
  const auto took = static_cast<double>(most);
  // A message that its receiver hasn't taken yet; the time at which it does depends on the ranks'
  // speed.
  const double message =
      static_cast<double>(config->batch.micro_batch_size * config->data.sequence_length *
                          config->model.hidden_size *
                          static_cast<std::int64_t>(size_of(dtype_of(config->precision.dtype)))) /
      (config->parallel.sequence_parallel
           ? static_cast<double>(config->parallel.tensor_model_parallel_size)
           : 1);
  const bool breadth_first = config->pipeline.schedule == "looped_bfs";
  const double on_their_way =
      message * static_cast<double>(breadth_first      ? config->num_microbatches()
                                    : d.several_chunks ? 8
                                                       : 4);
  EXPECT_GE(planned, 0.99 * took - on_their_way) << took;
  EXPECT_LE(planned, 1.01 * took + on_their_way + static_cast<double>(reports_of(plan))) << took;
  return true;
}

TEST(Plan, OfDrawnLayoutsIsWithinItsBoundsOfTheRun) {
  const std::uint64_t all = tests_are_full() ? 600 : 24;
  std::uint64_t compared = 0;
  for (std::uint64_t seed = 0; seed < all; ++seed) {
    const Drawn d = drawn(seed);
    SCOPED_TRACE(d.model + ", seed " + std::to_string(seed) + ": " +
                 ::testing::PrintToString(d.set));
    compared += expect_bound(d) ? 1 : 0;
  }
  EXPECT_GT(compared, all / 3);
}

// PipeDream's updates are not checked, so a step's report is collected after the next step.
TEST(Plan, OfPipedreamCountsTheReportsThatComeLate) {
  EXPECT_TRUE(expect_bound({"gpt2", overrides_of({.data = 1, .tensor = 3, .pipeline = 3}) +
                                        Overrides{"pipeline.schedule=pipedream",
                                                  "parallel.sequence_parallel=true",
                                                  "zero_optimization.stage=1",
                                                  "optimizer.type=Adafactor",
                                                  "optimizer.params.betas=null",
                                                  "optimizer.params.eps=null",
                                                  "precision.dtype=bf16",
                                                  "gradient_clipping=0",
                                                  "model.num_layers=7",
                                                  "model.hidden_size=48",
                                                  "model.num_attention_heads=6",
                                                  "model.num_query_groups=6",
                                                  "model.ffn_hidden_size=192",
                                                  "model.vocab_size=515",
                                                  "model.make_vocab_size_divisible_by=1",
                                                  "model.tie_word_embeddings=false",
                                                  "model.max_position_embeddings=64",
                                                  "data.sequence_length=30",
                                                  "batch.micro_batch_size=1",
                                                  "batch.gradient_accumulation_steps=null",
                                                  "batch.global_batch_size=12"}}));
}

}  // namespace
}  // namespace trident::testing
