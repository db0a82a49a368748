// The trainer's promises to its user: stopping, skipping, evaluation, callbacks, weights.
#include "run/loop/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "formats/hugging_face/hugging_face.h"
#include "planner/plan/plan.h"
#include "report/metrics_file.h"
#include "support/full_disk.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

Overrides constant_rate(const std::string& lr, int iterations) {
  return {"scheduler={\"type\": \"constant\"}", "optimizer.params.lr=" + lr,
          "training.train_iters=" + std::to_string(iterations)};
}

// A first step with rate 1e30 makes every activation of the second step overflow.
TEST(NonFinite, StopNamesIterationAndSamplesAndEndsAllRanks) {
  const TempDir dir;
  const Config config = seeded_config("gpt2", dir / "run",
                                      overrides_of({2, 2, 2}) + constant_rate("1e30", 4) +
                                          Overrides{"checkpoint.save=" + (dir / "weights")});
  const std::string message = message_of<Error>([&] { train(config); });
  EXPECT_NE(message.find("iteration 2:"), std::string::npos) << message;
  EXPECT_NE(message.find("samples 12 to 23"), std::string::npos) << message;
  const auto lines = read_metrics(dir / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_FALSE(lines[0].at("skipped").get<bool>());
  EXPECT_TRUE(lines[1].at("skipped").get<bool>());
  EXPECT_TRUE(std::filesystem::exists(dir / "run/report.html"));
  EXPECT_FALSE(std::filesystem::exists(dir / "weights/model.safetensors"));
}

TEST(NonFinite, SkipLeavesWeightsAsTheyWereOnAllRanks) {
  const TempDir dir;
  const auto weights_after = [&](int iterations, const Layout& layout, bool skips) {
    const Config config =
        seeded_config("gpt2", dir / "run",
                      overrides_of(layout) + constant_rate("1e30", iterations) +
                          Overrides{"training.on_non_finite=skip", "zero_optimization.stage=1",
                                    "checkpoint.save=" + (dir / "weights")});
    std::vector<std::string> messages;
    TrainerHooks hooks;
    hooks.on_message = [&](const std::string& text) { messages.push_back(text); };
    const TrainingSummary summary = train(config, usual_device(), hooks);
    EXPECT_EQ(static_cast<int>(summary.history.size()), iterations);
    for (const IterationMetrics& m : summary.history) EXPECT_EQ(m.skipped, m.iteration > 1);
    EXPECT_EQ(messages.size(), skips ? 2U : 0U);
    return slurp(dir / "weights/model.safetensors");
  };
  const std::string one = weights_after(1, {2, 2, 1}, false);
  EXPECT_TRUE(weights_after(3, {2, 2, 1}, true) == one);
  EXPECT_TRUE(weights_after(3, {2, 2, 2}, true) == one);
  const auto lines = read_metrics(dir / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_FALSE(lines[0].at("skipped").get<bool>());
  EXPECT_TRUE(lines[2].at("skipped").get<bool>());
  EXPECT_TRUE(lines[2].at("loss").is_null());
}

TEST(Stopping, TheFlagFinishesTheIterationAndSavesTheWeights) {
  const TempDir dir;
  const Config config =
      seeded_config("llama", dir / "run",
                    overrides_of({2, 1, 2}) + Overrides{"checkpoint.save=" + (dir / "weights")});
  std::atomic<bool> stop = false;
  TrainerHooks hooks{.stop = &stop};
  hooks.on_iteration = [&](IterationMetrics& m) { stop = m.iteration == 3; };
  const TrainingSummary summary = train(config, usual_device(), hooks);
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.history.size(), 4U);
  EXPECT_EQ(read_metrics(dir / "run/metrics.jsonl").size(), 4U);
  EXPECT_GT(read_tensors(dir / "weights/model.safetensors").size(), 10U);
}

TEST(Evaluation, NamedSetsAreReportedWhereAskedAndAreTheMeanLoss) {
  const TempDir dir;
  const std::string tokens = source_dir() + "/tests/golden/gpt2/tokens";
  const std::string other = source_dir() + "/tests/golden/llama/tokens";
  // With a zero learning rate, the first two batches of the training set keep their losses.
  // Evaluation must turn dropout off, and the training here has none.
  const Config config =
      seeded_config("gpt2", dir.path(),
                    overrides_of({2, 1, 2}) + constant_rate("0", 4) +
                        Overrides{"data.validation={\"here\": [{\"path\": \"" + tokens +
                                      "\"}], \"there\": [{\"path\": \"" + other + "\"}]}",
                                  "training.eval_interval=2", "training.eval_iters=2"});
  const TrainingSummary summary = train(config);
  ASSERT_EQ(summary.history.size(), 4U);
  EXPECT_TRUE(summary.history[0].validation_loss.empty());
  EXPECT_TRUE(summary.history[2].validation_loss.empty());
  for (const std::size_t k : {1U, 3U}) {
    const auto& sets = summary.history[k].validation_loss;
    ASSERT_EQ(sets.size(), 2U);
    EXPECT_EQ(sets[0].first, "here");
    EXPECT_EQ(sets[1].first, "there");
    EXPECT_NEAR(sets[0].second, (summary.history[0].loss + summary.history[1].loss) / 2, 1e-9);
    EXPECT_TRUE(std::isfinite(sets[1].second));
  }
  const auto lines = read_metrics(dir / "metrics.jsonl");
  EXPECT_FALSE(lines[0].contains("validation_loss"));
  EXPECT_EQ(lines[1].at("validation_loss").at("there").get<double>(),
            summary.history[1].validation_loss[1].second);
}

TEST(Evaluation, HasNoDropout) {
  const TempDir dir;
  const auto validation = [&](const std::string& dropout) {
    const Config config = seeded_config(
        "gpt2", dir.path(),
        overrides_of({1, 2, 2}) + constant_rate("0", 1) +
            Overrides{"data.split=3,1", "training.eval_iters=1", "model.hidden_dropout=" + dropout,
                      "model.attention_dropout=" + dropout});
    const IterationMetrics metrics = train(config).history.at(0);
    return std::pair(metrics.loss, metrics.validation_loss.at(0).second);
  };
  const auto [trained_with, with] = validation("0.4");
  const auto [trained_without, without] = validation("0");
  EXPECT_NE(trained_with, trained_without);
  EXPECT_EQ(with, without);
}

TEST(Metrics, AddUpOverRanksAndAgreeWithThePlan) {
  const TempDir dir;
  const Config config = seeded_config(
      "llama", dir.path(),
      overrides_of({2, 2, 2}) + constant_rate("1e-3", 3) + Overrides{"zero_optimization.stage=1"});
  const Plan plan = plan_each_rank(config, *built_in_architectures().at("llama"));
  std::map<std::string, std::int64_t> sent, states;
  for (const PlanRank& rank : plan.ranks) {
    for (const auto& [group, bytes] : rank.bytes_sent) sent[group] += bytes;
    for (const char* state : {"parameter", "gradient", "optimizer"}) {
      states[state] = std::max(states[state], rank.bytes.at(state));
    }
  }
  const auto tokens = config.batch.global_batch_size * config.data.sequence_length;
  for (const IterationMetrics& m : train(config).history) {
    EXPECT_EQ(m.consumed_tokens, tokens * m.iteration);
    EXPECT_EQ(m.bytes_sent, sent);
    for (const auto& [category, bytes] : states) EXPECT_EQ(m.peak_memory.at(category), bytes);
    EXPECT_GT(m.peak_memory.at("activation"), 0);
    EXPECT_GE(m.peak_memory.at("total"), states["parameter"] + states["optimizer"]);
    const double seconds = m.iteration_time_ms * 1e-3;
    EXPECT_NEAR(m.tokens_per_second * seconds / static_cast<double>(tokens), 1, 1e-9);
    EXPECT_NEAR(m.tflops * 1e12 * seconds / plan.flops_per_step, 1, 1e-9);
    // The ratio replayed action by action nearly equals the prediction from mean times.
    EXPECT_NEAR(m.bubble_predicted, m.bubble_ratio, 0.2);
    EXPECT_GT(m.bubble_predicted, 0);
    ASSERT_EQ(m.rank_bubble_ratio.size(), 2U);
    EXPECT_NEAR((m.rank_bubble_ratio[0] + m.rank_bubble_ratio[1]) / 2, m.bubble_ratio, 1e-12);
  }
}

TEST(Weights, AreSavedWithTheTokenizer) {
  const TempDir dir;
  spit(dir / "t.json", "{\"a\": 1}");
  train(seeded_config("gpt2", dir / "run",
                      Overrides{"training.train_iters=1", "checkpoint.save=" + (dir / "weights"),
                                "scheduler={\"type\": \"constant\"}", "data.tokenizer.type=file",
                                "data.tokenizer.path=" + (dir / "t.json")}));
  EXPECT_EQ(slurp(dir / "weights/tokenizer.json"), "{\"a\": 1}");
}

// The tokenizer is read before the start, so a later error can't lose the weights at the end.
TEST(Weights, AreSavedAlthoughTheTokenizersFileIsRemoved) {
  const TempDir dir;
  const auto config = [&](const std::string& tokenizer) {
    return seeded_config("gpt2", dir / "run",
                         Overrides{"training.train_iters=1", "checkpoint.save=" + (dir / "weights"),
                                   "scheduler={\"type\": \"constant\"}", "data.tokenizer.type=file",
                                   "logging.overwrite=true", "data.tokenizer.path=" + tokenizer});
  };
  spit(dir / "t.json", "{\"a\": 1}");
  TrainerHooks hooks;
  hooks.on_iteration = [&](IterationMetrics&) { std::filesystem::remove(dir / "t.json"); };
  train(config(dir / "t.json"), usual_device(), hooks);
  EXPECT_EQ(slurp(dir / "weights/tokenizer.json"), "{\"a\": 1}");
  EXPECT_THAT(message_of<RequestError>([&] { prepare_training(config("/dev/null")); }),
              ::testing::AllOf(::testing::HasSubstr("config: /data/tokenizer/path: "),
                               ::testing::HasSubstr("not a regular file")));
}

// The disk is full when the run creates its log files, and has space a little later.
TEST(Logs, ThatCouldNotBeMadeAreTriedAgain) {
  const TempDir dir;
  const Config config = seeded_config(
      "gpt2", dir.path(), constant_rate("0.001", 3) + Overrides{"logging.overwrite=false"});
  std::optional<FullDisk> full;
  std::vector<std::string> messages;
  TrainerHooks hooks;
  hooks.on_begin = [&](const StartingPoint&) { full.emplace(0); };
  hooks.on_message = [&](const std::string& text) { messages.push_back(text); };
  hooks.on_iteration = [&](const IterationMetrics& m) {
    if (m.iteration == 2) full.reset();
  };
  train(config, usual_device(), hooks);
  const auto lines = read_metrics(dir / "metrics.jsonl");
  // The first iteration's line is lost if it was written while the disk was full.
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines.back().at("iteration"), 3);
  EXPECT_FALSE(parse_config(slurp(dir / "config.json"), {}, {.constraints = built_in_constraints()})
                   .config.logging.overwrite);
  ASSERT_GE(messages.size(), 2U);
  EXPECT_THAT(messages[0], ::testing::StartsWith("LOGGING FAILED (all log files): "));
  EXPECT_THAT(messages[1], ::testing::StartsWith("logging resumes"));
  // A third message counts the lost lines.
  EXPECT_EQ(messages.size(), lines.size() == 2 ? 3U : 2U);
}

TEST(Hooks, AUsersOwnMetricsAreWritten) {
  const TempDir dir;
  const Config config =
      seeded_config("gpt2", dir.path(), overrides_of({1, 1, 2}) + constant_rate("0.001", 3));
  TrainerHooks hooks;
  hooks.on_iteration = [](IterationMetrics& m) { m.extra["perplexity"] = std::exp(m.loss); };
  train(config, usual_device(), hooks);
  const auto lines = read_metrics(dir / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 3U);
  for (const auto& line : lines) {
    EXPECT_EQ(line.at("perplexity").get<double>(), std::exp(line.at("loss").get<double>()));
  }
}

TEST(Hooks, AnExceptionOnRankZeroEndsAllRanksWithThatError) {
  const TempDir dir;
  const Config config = seeded_config("gpt2", dir.path(), overrides_of({2, 2, 2}));
  TrainerHooks hooks;
  hooks.on_iteration = [](IterationMetrics& m) {
    if (m.iteration == 2) throw std::out_of_range("a user's own mistake");
  };
  for (const On on : {On::cpu, On::guarded}) {
    EXPECT_EQ(message_of<std::out_of_range>([&] { train(config, on, hooks); }),
              "a user's own mistake");
  }
}

TEST(Weights, SavedOnesReloadToTheSameLossInAnotherLayout) {
  for (const char* model : {"gpt2", "llama"}) {
    SCOPED_TRACE(model);
    const TempDir dir;
    const std::string weights = dir / "weights";
    train(seeded_config(model, dir / "run",
                        overrides_of({2, 2, 2}) + Overrides{"checkpoint.save=" + weights,
                                                            "zero_optimization.stage=1",
                                                            "training.train_iters=6"}));
    const auto loss = [&](const Layout& layout) {
      return train(seeded_config(model, dir / "run",
                                 overrides_of(layout) + constant_rate("0.001", 1) +
                                     Overrides{"checkpoint.load=" + weights}))
          .history[0]
          .loss;
    };
    const double fresh =
        train(seeded_config(model, dir / "run", constant_rate("0.001", 1))).history[0].loss;
    const double plain = loss({1, 1, 1});
    EXPECT_GT(std::abs(plain - fresh), 1e-3);
    EXPECT_NEAR(loss({1, 4, 1}) / plain, 1, 1e-6);
    EXPECT_NEAR(loss({3, 1, 4}) / plain, 1, 1e-6);
    EXPECT_NEAR(loss({1, 2, 2, 2}) / plain, 1, 1e-6);
  }
}

TEST(Weights, HuggingFaceRoundTripKeepsEveryByteInEveryLayout) {
  for (const std::string model : {"gpt2", "llama"}) {
    SCOPED_TRACE(model);
    const TempDir dir;
    const std::string source = source_dir() + "/tests/golden/" + model + "/model";
    const auto truth = read_tensors(source + "/model.safetensors");
    std::string first;
    for (const Layout layout :
         {Layout{1, 1, 1}, Layout{2, 2, 2}, Layout{1, 4, 1}, Layout{1, 1, 4, 2}}) {
      SCOPED_TRACE(name_of(layout));
      const Config config = golden_config(model, dir / "run", overrides_of(layout));
      on_ranks(config, transport_options(config), [&](Rank& own) {
        load_hugging_face(own.model, source);
        save_hugging_face(own.model, own.model.topology().world, dir / "saved");
      });
      const auto saved = read_tensors(dir / "saved/model.safetensors");
      for (const auto& [name, tensor] : truth) {
        ASSERT_TRUE(saved.contains(name)) << name;
        EXPECT_EQ(saved.at(name).shape, tensor.shape) << name;
        EXPECT_TRUE(saved.at(name).values == tensor.values) << name;
      }
      const std::string bytes = slurp(dir / "saved/model.safetensors");
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first);
    }
  }
}

// L(e) = (1 - e)·L(0) + e·U, where U is the mean of -log p over the vocabulary, at least log V.
TEST(LabelSmoothing, LossLiesOnTheLineOfTheFormulaInEveryLayout) {
  const TempDir dir;
  for (const Layout layout : {Layout{1, 1, 1}, Layout{2, 2, 2}}) {
    const auto loss = [&](double smoothing) {
      return train(golden_config(
                       "llama", dir.path(),
                       overrides_of(layout) +
                           Overrides{"training.train_iters=1", "scheduler={\"type\": \"constant\"}",
                                     "training.label_smoothing=" + std::to_string(smoothing)}))
          .history[0]
          .loss;
    };
    const double plain = loss(0), half = loss(0.5);
    const double uniform = 2 * half - plain;
    EXPECT_GT(uniform, std::log(515.0));
    EXPECT_LT(uniform, std::log(515.0) + 1);
    for (const double e : {0.1, 0.25}) {
      EXPECT_NEAR(loss(e), (1 - e) * plain + e * uniform, 1e-6) << name_of(layout) << " " << e;
    }
  }
}

}  // namespace
}  // namespace trident::testing
