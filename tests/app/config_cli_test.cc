// Configs as people write them: made by `init`, with comments, begun from others, without a model
// where weights have one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/cli.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, InitWritesAConfigThatTrains) {
  const Outcome made = run({"init", "mine.json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, StartsWith("wrote mine.json\n"));
  const Outcome trained =
      run({"train", "mine.json", "--set", "training.train_iters=2", "--set", "data.split=null",
           "--set", "data.sequence_length=16", "--set", "model.hidden_size=16"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(metrics_lines(dir / "runs/mine/metrics.jsonl"), 2);
  EXPECT_TRUE(std::filesystem::exists(dir / "runs/mine/weights/model.safetensors"));
  expect_refused({"init", "mine.json"}, {"mine.json: is there already"});
  expect_refused({"init", "x.json", "--preset", "gpt2_124"}, {"did you mean gpt2_124m?"});
  expect_refused({"init", "."}, {"needs the name of a file"});
  const Outcome shown = run({"init", "-", "--preset", "llama_8b"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.out, HasSubstr("\"num_layers\": 32,"));
  EXPECT_FALSE(std::filesystem::exists(dir / "-"));
}

TEST_F(CliTest, ARunKeepsWhatWasAskedForAndWhatCameOfIt) {
  json base = config;
  base.erase("training");
  spit(dir / "base.json", base.dump());
  spit(dir / "own.json",
       "{\n  // mine\n  \"extends\": \"base.json\",\n  \"training\": {\"train_iters\": 2}\n}\n");
  const Outcome trained = run({"train", "own.json", "--set", "training.seed=5"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const json asked = json::parse(slurp(dir / "run/config.user.json"));
  EXPECT_EQ(asked["training"], json::parse(R"({"train_iters": 2, "seed": 5})"));
  EXPECT_EQ(asked["model"], config["model"]);
  EXPECT_EQ(json::parse(slurp(dir / "run/config.json"))["training"]["eval_interval"], 100);
  // What it was begun from may be gone.
  std::filesystem::remove(dir / "base.json");
  const Outcome again = run({"train", "run/config.user.json", "--set", "logging.overwrite=true"});
  ASSERT_EQ(again.code, 0) << again.err;
  expect_refused({"train", "own.json"}, {"base.json: can't open"});
}

TEST_F(CliTest, ARunTakesTheModelOfTheWeightsThatItBeginsWith) {
  train_once();
  json rest = config;
  rest.erase("model");
  rest["checkpoint"] = {{"load", "weights"}, {"save", "more"}};
  rest["logging"]["dir"] = "more_run";
  spit(dir / "rest.json", rest.dump());
  const Outcome trained = run({"train", "rest.json"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(json::parse(slurp(dir / "more/config.json")),
            json::parse(slurp(dir / "weights/config.json")));
  const json asked = json::parse(slurp(dir / "more_run/config.user.json"));
  EXPECT_FALSE(asked.contains("model"));
  EXPECT_EQ(json::parse(slurp(dir / "more_run/config.json"))["model"]["hidden_size"], 16);
  // The run's own config says all of it, so the weights may be gone.
  std::filesystem::remove_all(dir / "weights");
  const Outcome plan = run({"plan", "more_run/config.json", "--set", "checkpoint.load=null"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  expect_refused({"train", "rest.json", "--set", "logging.dir=third"},
                 {"/checkpoint/load: weights/config.json: there is no such file"});
}

TEST_F(CliTest, QuietPrintsNothing) {
  const Outcome quiet = run(train({"training.train_iters=3"}));
  std::vector<std::string> words = train({"logging.overwrite=true"});
  words.push_back("--quiet");
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(quiet.out, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace trident::testing
