// Configs as people write them: made by `init`, with comments, based on other configs, and without
// a model if the weights have one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
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
  expect_refused({"init", "."}, {".: needs the path of a file"});
  const Outcome shown = run({"init", "-", "--preset", "llama_8b"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.out, HasSubstr("\"num_layers\": 32,"));
  EXPECT_FALSE(std::filesystem::exists(dir / "-"));
}

TEST_F(CliTest, ARunKeepsTheUsersConfigAndTheFilledInConfig) {
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
  // The base config may be gone.
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
  // The run's own config is complete, so the weights may be gone.
  std::filesystem::remove_all(dir / "weights");
  const Outcome plan = run({"plan", "more_run/config.json", "--set", "checkpoint.load=null"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  expect_refused(
      {"train", "rest.json", "--set", "logging.dir=third", "--set", "checkpoint.save=other"},
      {"/checkpoint/load: weights/config.json: there is no such file"});
}

TEST_F(CliTest, AResumedRunNeedsTheWeightsThatItBeganWithNoMore) {
  train_once();
  json rest = config;
  rest.erase("model");
  rest["checkpoint"] = {{"load", "weights"}, {"save", "more"}, {"save_interval", 1}};
  rest["logging"]["dir"] = "more_run";
  rest["training"]["train_iters"] = 2;
  spit(dir / "rest.json", rest.dump());
  ASSERT_EQ(run({"train", "rest.json"}).code, 0);
  std::filesystem::remove_all(dir / "weights");
  // A killed run leaves no config.json here.
  std::filesystem::remove(dir / "more/config.json");
  const Outcome on = run({"train", "rest.json", "--set", "training.train_iters=3"});
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.err, HasSubstr("resuming from more/iteration-2"));
  expect_refused(
      {"train", "rest.json", "--set", "checkpoint.load=more_run", "--set", "checkpoint.save=null"},
      {"more_run is the folder of a run; name that of its weights, \"more\""});
}

TEST_F(CliTest, ASweepTakesTheModelOfTheWeights) {
  train_once();
  json rest = config;
  rest.erase("model");
  rest["checkpoint"] = {{"load", "weights"}};
  spit(dir / "rest.json", rest.dump());
  const Outcome sweep = run({"sweep", "rest.json", "--grid", "dp=1", "--dry-run"});
  EXPECT_EQ(sweep.code, 0) << sweep.err;
}

TEST_F(CliTest, AConfigBeginsFromThatOfARunAsItWasWritten) {
  train_once();
  spit(dir / "next.json", R"({"extends": "run/config.json", "training": {"train_iters": 20},
                              "logging": {"dir": "next"}, "checkpoint": {"save": "next/w"}})");
  const Outcome dry = run({"train", "next.json", "--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(json::parse(dry.out)["scheduler"]["decay_iters"], 20) << "which follows";
}

TEST_F(CliTest, InitReplacesNothingButFiles) {
  std::filesystem::create_symlink("nowhere", dir / "link.json");
  expect_refused({"init", "link.json"}, {"link.json: is there already"});
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_refused({"init", "pipe", "--overwrite"}, {"pipe: is no regular file"});
  const Outcome spaced = run({"init", "my run.json"});
  EXPECT_THAT(spaced.out, HasSubstr("trident train 'my run.json'\n"));
}

TEST_F(CliTest, AReportIsDrawnOfRunsThatEndedAndOthers) {
  train_once();
  std::filesystem::copy(dir / "run", dir / "killed", std::filesystem::copy_options::recursive);
  for (const char* file : {"report.html", "timeline.json", "run.json"}) {
    std::filesystem::remove(dir / (std::string("killed/") + file));
  }
  const Outcome one = run({"report", "killed/"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, "wrote killed/report.html\n");
  const Outcome both = run({"report", "run", "killed", "--out", "-"});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("2 Trident runs"));
  expect_refused({"report", "nowhere"}, {"nowhere: there is no metrics.jsonl in it"});
  spit(dir / "killed/metrics.jsonl", "{\"iteration\": 1, \"loss\": \"</script>\", \"x\": 1}\n");
  EXPECT_EQ(run({"report", "killed"}).code, 0);
  spit(dir / "killed/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2}\n{\"iteration\": 2, \"lo");
  EXPECT_EQ(run({"report", "killed"}).code, 0) << "a line that is being written";
  spit(dir / "killed/metrics.jsonl", "[]\n");
  expect_refused({"report", "killed"}, {"killed/metrics.jsonl"});
}

TEST_F(CliTest, AReportHasTheTimelinesOfAllStarts) {
  const std::vector<std::string> saves{"checkpoint.save=w", "checkpoint.save_interval=2",
                                       "logging.trace_at=[1,4]", "training.train_iters=2"};
  ASSERT_EQ(run(train(saves)).code, 2) << "iteration 4 isn't there yet";
  std::vector<std::string> first = saves, second = saves;
  first[2] = "logging.trace_at=[1,2]";
  second[3] = "training.train_iters=4";
  ASSERT_EQ(run(train(first)).code, 0);
  ASSERT_EQ(run(train(second)).code, 0);
  const json timelines = json::parse(slurp(dir / "run/timeline.json"));
  ASSERT_EQ(timelines.size(), 6) << "predicted and measured, of 1, 2 and 4";
  EXPECT_THAT(timelines.back()["title"].get<std::string>(), HasSubstr("iteration 4"));
  const json about = json::parse(slurp(dir / "run/run.json"));
  EXPECT_EQ(about["starts"].size(), 2);
  EXPECT_EQ(about["starts"][1]["after"], 2);
  // The report leaves out invalid timelines.
  spit(dir / "run/timeline.json", R"([{}, 3, {"title": "x", "rows": [], "events": [[1]]}])");
  EXPECT_EQ(run({"report", "run"}).code, 0);
}

TEST_F(CliTest, APlanRefusesAConfigThatTrainingRefuses) {
  expect_refused({"plan", "c.json", "--set", "optimizer.param_groups=[{\"params\": \"x\"}]"},
                 {"/optimizer/param_groups/0/params: \"x\" matches no parameter"});
}

TEST_F(CliTest, ShellsAndManKnowAllCommandsAndOptions) {
  const Outcome bash = run({"completion", "bash"}), fish = run({"completion", "fish"}),
                man = run({"man"});
  for (const Outcome* one : {&bash, &fish, &man}) EXPECT_EQ(one->code, 0) << one->err;
  EXPECT_THAT(bash.out, HasSubstr("\"bench gemm\")"));
  EXPECT_THAT(fish.out, HasSubstr("-l dry-run"));
  EXPECT_THAT(man.out, HasSubstr(".SS trident schedule compare"));
  EXPECT_THAT(man.out, HasSubstr("\\fB\\-\\-dry\\-run\\fR"));
  expect_refused({"completion", "tcsh"}, {"tcsh not in", "--help"});
  // bash evaluates the completions.
  spit(dir / "complete.sh",
       bash.out +
           "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _trident; echo "
           "\"${COMPREPLY[*]}\"; }\n"
           "try trident tra; try trident train --dry; try trident train c.json --format ''\n"
           "try trident bench ge; try trident train --format = js; try trident train ''\n"
           "try trident --vers\n");
  const std::string output = dir / "completed";
  ASSERT_EQ(std::system(("bash " + (dir / "complete.sh") + " > " + output).c_str()), 0);
  EXPECT_EQ(slurp(output), "train\n--dry-run\ntext json\ngemm\njson\n\n--version\n");
}

TEST_F(CliTest, JsonHasTheFiguresOfTheSummary) {
  std::vector<std::string> words = train({"training.train_iters=3"});
  words.insert(words.end(), {"--format", "json"});
  const Outcome outcome = run(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["iterations"], 3);
  EXPECT_EQ(result["loss_curve"]["loss"].size(), 3);
  EXPECT_EQ(result["loss_curve"]["loss"].back(), result["loss"]);
  for (const char* key : {"stopped", "ranks", "schedule", "tokens_per_second", "mfu", "mfu_of",
                          "bubble_ratio", "bubble_ratio_wall", "bubble_predicted", "architecture",
                          "parallel", "transport", "threads_per_rank", "device", "written"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_GT(result["peak_memory"]["total"], 0);
  EXPECT_EQ(result["peak_memory"].size(), result["predicted_memory"].size());
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
  // Resuming causes no warning either, so --quiet prints nothing.
  const std::vector<std::string> saves{"logging.overwrite=true", "checkpoint.save=saved",
                                       "checkpoint.save_interval=1"};
  ASSERT_EQ(run(train(saves)).code, 0);
  words = train(saves);
  words.push_back("--quiet");
  EXPECT_EQ(run(words).err, "");
}

TEST_F(CliTest, AnEmptyValueIsRefused) {
  const auto refused = [&](std::vector<std::string> words, const std::string& option) {
    words.insert(words.end(), {option, ""});
    expect_refused(words, {option + ": needs a value, not \"\""});
  };
  for (const char* option : {"--straggler", "--slow-link", "--assume", "--inside-table", "--out"}) {
    refused({"simulate", "c.json", "--machine", "m.json"}, option);
  }
  refused({"train", "c.json"}, "--set");
  refused({"plan", "c.json"}, "--memory");
  refused({"report", "run"}, "--out");
  refused({"launch", "c.json"}, "--with");
  refused({"schedule", "--kind", "1f1b"}, "--times");
  const auto lacks = [&](const std::vector<std::string>& words, const std::string& problem) {
    expect_refused(words, {problem});
  };
  lacks({"generate", "w", "--ids", "1,,2"}, "--ids: \"1,,2\": has an item that is empty");
  lacks({"generate", "w", "--ids", "1, ,2"}, "--ids: has nothing between two commas");
  lacks({"generate", "w", "--ids", "1,2,"}, "--ids: \"1,2,\": has an item that is empty");
  lacks({"eval", "w", "--part", "test,,train"}, "--part: \"test,,train\": has an item");
  lacks({"eval", "w", "--part", "tests"}, "--part: \"tests\": needs train, validation, test");
  lacks({"search", "c.json", "--machine", "m", "--ranks", "8,,16"}, "--ranks: \"8,,16\": has an");
  lacks({"search", "c.json", "--machine", "m", "--ranks", "8,0"}, "--ranks: \"0\": needs a number");
}

TEST_F(CliTest, WhereNoFileCanBeWrittenTheRequestIsWrong) {
  train_once();
  const std::vector<std::string> schedule{"schedule", "--kind",         "1f1b", "--stages",
                                          "2",        "--microbatches", "4",    "--out"},
      compare{"schedule", "compare", "1f1b", "--stages", "2", "--microbatches", "4", "--out"},
      sweep{"sweep", "c.json", "--grid", "tp=1", "--fit"};
  for (const char* place : {"run", "none/file"}) {
    std::vector<std::vector<std::string>> requests{
        {"report", "run", "--out"},
        {"init", "--overwrite"},
        {"bench", "machine", "c.json", "--out"},
        {"simulate", "c.json", "--machine", "m.json", "--out"},
        {"search", "c.json", "--machine", "m.json", "--out"},
        schedule,
        compare,
        sweep};
    for (std::vector<std::string>& words : requests) {
      words.emplace_back(place);
      expect_refused(words, {std::string(place) + ": needs the path of a file"});
    }
  }
  expect_refused({"export", "weights", "none/x.gguf"}, {"none/x.gguf: there is no directory"});
}

TEST_F(CliTest, EveryCommandThatReportsHasJson) {
  ASSERT_EQ(run(train({"checkpoint.save_interval=1"})).code, 0);
  const auto result = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << words.front() << ": " << outcome.err;
    return json::parse(outcome.out);
  };
  EXPECT_EQ(result({"init", "x.json"})["wrote"], "x.json");
  EXPECT_EQ(result({"report", "run"})["wrote"], "run/report.html");
  EXPECT_EQ(result({"export", "run", "hf"})["wrote"], "hf");
  EXPECT_EQ(result({"export", "run", "hf.gguf"})["wrote"], "hf.gguf");
  EXPECT_EQ(result({"import", "hf", "in"}), (json{{"wrote", "in"}, {"notes", json::array()}}));
  EXPECT_EQ(result({"checkpoint", "export", "run", "one"})["wrote"], "one");
  EXPECT_EQ(result({"checkpoint", "prune", "run", "--keep", "1", "--dry-run"})["removed"].size(),
            2);
  EXPECT_EQ(result({"sweep", "c.json", "--grid", "pp=1,2", "--dry-run"})["points"].size(), 2);
}

TEST_F(CliTest, AKeyWithoutEffectIsReportedOnceAndTheRunResumes) {
  const std::string note = "config: /parallel/sequence_parallel: true has no effect with ";
  const std::vector<std::string> base{"parallel.sequence_parallel=true",
                                      "checkpoint.save_interval=1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return train(more);
  };
  const Outcome wide =
      run(with({"parallel.tensor_model_parallel_size=2", "training.train_iters=2"}));
  ASSERT_EQ(wide.code, 0) << wide.err;
  EXPECT_THAT(wide.err, Not(HasSubstr(note)));
  auto words = with({"training.train_iters=4"});
  words.insert(words.end(), {"--format", "json"});
  const Outcome narrow = run(words);
  ASSERT_EQ(narrow.code, 0) << narrow.err;
  EXPECT_EQ(narrow.err.find(note), narrow.err.rfind(note)) << narrow.err;
  EXPECT_THAT(narrow.err, HasSubstr(note));
  EXPECT_EQ(metrics_lines(dir / "run/metrics.jsonl"), 4) << "it has begun anew";
  const auto notes = [&](const std::string& out) {
    const json all = json::parse(out)["notes"];
    ASSERT_EQ(all.size(), 1);
    EXPECT_THAT(all[0].get<std::string>(), HasSubstr(note));
  };
  notes(narrow.out);
  notes(run({"plan", "c.json", "--set", base[0], "--format", "json"}).out);
  words.emplace_back("--dry-run");
  notes(run(words).out);
  auto quiet = with({"training.train_iters=5"});
  quiet.emplace_back("--quiet");
  EXPECT_THAT(run(quiet).err, Not(HasSubstr(note)));
}

// An error begins with its place: config, option or file, or "trident COMMAND" for the
// command itself.
TEST_F(CliTest, ErrorsBeginWithTheirPlace) {
  train_once();
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"generate", "none"},
                                             {"generate", "weights", "--ids", "x"},
                                             {"generate", "weights", "--prompt", ""},
                                             {"generate", "weights", "--stop", ""},
                                             {"eval", "weights"},
                                             {"eval", "run", "--part", "test"},
                                             {"eval", "run", "--stride", "1000"},
                                             {"init", "c.json"},
                                             {"init", "--preset", "x", "new.json"},
                                             {"sweep", "c.json", "--grid", "shape=1"},
                                             {"export", "weights", "weights"},
                                             {"export", "weights", ""},
                                             {"export", "weights", "x", "--outtype", "f16"},
                                             {"schedule"},
                                             {"schedule", "--kind", "1f1b"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err,
                ::testing::MatchesRegex(
                    "(config: /|--[a-z-]+: |trident( [a-z]+)+: |[a-z0-9./]*[./a-z]: )(.|\n)*"));
    for (const char* command :
         {"generate", "eval", "init", "sweep", "export", "schedule", "grid"}) {
      EXPECT_THAT(outcome.err, Not(::testing::StartsWith(command + std::string(": "))));
    }
  }
}

}  // namespace
}  // namespace trident::testing
