// `train` as a black box: exit codes, messages and files.
#include "tests/app/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "kernels/cuda_device.h"
#include "support/source_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, ShowsEveryProblemOfAConfigAtOnceOneALine) {
  expect_refused(train({"trainin.seed=1", "model.num_layer=3", "data.train.0.pth=x",
                        "optimizer.params.beta=1", "model.hidden_size=\"wide\"",
                        "training.train_iters=-1", "parallel.sequence_parallel=1"}),
                 {"config: /trainin: unknown key; did you mean training?",
                  "config: /model/num_layer: unknown key; did you mean num_layers?",
                  "config: /data/train/0/pth: unknown key; did you mean path?",
                  "config: /optimizer/params/beta: unknown key; did you mean betas?",
                  "config: /model/hidden_size: \"wide\" is not an integer",
                  "config: /training/train_iters: -1 is not an integer at least 1",
                  "config: /parallel/sequence_parallel: 1 is not "});
}

TEST_F(CliTest, NamesTheSizesThatDoNotDivideAndTheChoices) {
  expect_refused(train({"parallel.tensor_model_parallel_size=3", "model.hidden_size=32",
                        "model.num_attention_heads=4"}),
                 {"config: /parallel/tensor_model_parallel_size: 3 does not divide "
                  "num_attention_heads (4); use 1, 2 or 4"});
  expect_refused(train({"batch.gradient_accumulation_steps=7"}),
                 {"/batch/global_batch_size: 4 is not micro_batch_size (2) × "
                  "gradient_accumulation_steps (7) × data_parallel_size (1) = 14"});
}

TEST_F(CliTest, RefusesFilesThatAreNoConfig) {
  spit(dir / "twice.json", R"({"model": {"num_layers": 1, "num_layers": 2}})");
  spit(dir / "deep.json", std::string(100000, '['));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"model\":";
  spit(dir / "deep_objects.json", deep);
  spit(dir / "short.json", R"({"model": {)");
  expect_refused({"train", "twice.json"}, {"/model/num_layers: this key occurs twice"});
  expect_refused({"train", "deep.json"}, {"nested deeper than"});
  expect_refused({"train", "deep_objects.json"}, {"nested deeper than"});
  expect_refused({"train", "short.json"}, {"short.json:1:"});
  expect_refused({"train", "nowhere.json"}, {"nowhere.json: can't open: No such file"});
}

TEST_F(CliTest, RefusesOverridesThatMeanNothing) {
  expect_refused(train({"training.seed"}), {"--set training.seed: must be key.key=value"});
  expect_refused(train({"data.train.7.path=x"}), {"data.train.7.path"});
  const Outcome last_wins = run({"plan", "c.json", "--set", "model.num_layers=4", "--set",
                                 "model.num_layers=6", "--format", "json"});
  const Outcome six = run({"plan", "c.json", "--set", "model.num_layers=6", "--format", "json"});
  EXPECT_EQ(last_wins.code, 0) << last_wins.err;
  EXPECT_EQ(last_wins.out, six.out);
}

TEST_F(CliTest, RefusesDataThatCanNotBeUsed) {
  spit(dir / "empty.txt", "");
  spit(dir / "short.txt", "0123456789");
  expect_refused(train({"data.train.0.path=nowhere"}),
                 {"config: /data/train/0/path: nowhere: no such file"});
  expect_refused(train({"data.train.0.path=empty.txt"}),
                 {"config: /data/train/0/path: empty.txt: the file is empty"});
  expect_refused(train({"data.train.0.path=short.txt"}), {"/data/train"});
}

// Writes a Megatron .bin/.idx pair of one document of `tokens` uint16 tokens.
void write_pair(const std::string& prefix, std::int64_t tokens, std::uint16_t token) {
  const auto append = [](std::string& to, auto value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  std::string bin, idx("MMIDIDX\0\0", 9);
  for (std::int64_t i = 0; i < tokens; ++i) append(bin, token);
  append(idx, std::uint64_t{1});  // version
  append(idx, std::uint8_t{8});   // uint16
  append(idx, std::uint64_t{1});  // sequences
  append(idx, std::uint64_t{2});  // document indices
  append(idx, static_cast<std::int32_t>(tokens));
  append(idx, std::int64_t{0});  // its offset in the .bin
  append(idx, std::int64_t{0});
  append(idx, std::int64_t{1});
  spit(prefix + ".bin", bin);
  spit(prefix + ".idx", idx);
}

TEST_F(CliTest, RefusesTruncatedTokenFiles) {
  write_pair(dir / "good", 200, 7);
  const std::string vocabulary = "model.vocab_size=256";
  EXPECT_EQ(run(train({"data.train.0.path=good", vocabulary})).code, 0);
  const std::string again = "logging.overwrite=true";
  write_pair(dir / "short_idx", 200, 7);
  std::filesystem::resize_file(dir / "short_idx.idx", 30);
  expect_refused(train({again, "data.train.0.path=short_idx"}), {"short_idx.idx: truncated"});
  write_pair(dir / "short_bin", 200, 7);
  std::filesystem::resize_file(dir / "short_bin.bin", 100);
  expect_refused(train({again, "data.train.0.path=short_bin"}), {"short_bin.bin: 100 bytes"});
}

TEST_F(CliTest, ATokenBeyondTheVocabularyEndsTheRunWithItsPlace) {
  write_pair(dir / "beyond", 200, 300);
  const Outcome outcome = run(train({"data.train.0.path=beyond", "model.vocab_size=256"}));
  EXPECT_EQ(outcome.code, 3) << "found when it is read";
  EXPECT_THAT(outcome.err, HasSubstr("beyond.bin: token 300 at position"));
  EXPECT_THAT(outcome.err, HasSubstr("vocab_size 256"));
  EXPECT_FALSE(std::filesystem::exists(dir / "weights/model.safetensors"));
  EXPECT_EQ(metrics_lines(dir / "run/metrics.jsonl"), 0);
}

TEST_F(CliTest, RefusesWeightsThatDoNotFit) {
  train_once();
  const std::string good = slurp(dir / "weights/model.safetensors");
  const auto with_weights = [&](const std::string& bytes) {
    std::filesystem::create_directories(dir / "bad");
    spit(dir / "bad/config.json", slurp(dir / "weights/config.json"));
    spit(dir / "bad/model.safetensors", bytes);
  };
  const auto request = train({"logging.dir=run2", "checkpoint.save=new", "checkpoint.load=bad"});

  with_weights(good.substr(0, good.size() - 100));
  expect_refused(request, {"bad/model.safetensors: tensor"});
  with_weights(good.substr(0, 5));
  expect_refused(request, {"bad/model.safetensors"});
  with_weights(std::string(8, '\xff') + good.substr(8));
  expect_refused(request, {"header length 18446744073709551615 is beyond the limit"});
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  std::string nested = good;
  std::fill_n(nested.begin() + 8, header, '[');
  with_weights(nested);
  expect_refused(request, {"bad/model.safetensors"});
  std::string wrong = good;  // the same number of elements in another shape
  const std::size_t at = wrong.find("[256,16]");
  ASSERT_NE(at, std::string::npos);
  wrong.replace(at, 8, "[16,256]");
  with_weights(wrong);
  expect_refused(request, {"tensor transformer.wte.weight has the shape [16, 256], the config "
                           "needs [256, 16]"});
  with_weights(good);
  expect_refused(train({"logging.dir=run2", "checkpoint.save=new", "checkpoint.load=bad",
                        "model.num_layers=3"}),
                 {"config: /model/num_layers: 3 differs from 2 in bad/config.json"});
  expect_refused(train({"logging.dir=run2", "checkpoint.save=new", "checkpoint.load=nowhere"}),
                 {"nowhere/config.json"});
}

TEST_F(CliTest, RefusesOutputDirectoriesThatCanNotBeWritten) {
  expect_refused(train({"logging.dir=file/run"}), {"config: /logging/dir: file/run: "});
  expect_refused(train({"checkpoint.save=file/weights"}),
                 {"config: /checkpoint/save: file/weights: "});
}

TEST_F(CliTest, RefusesToOverwriteAnExistingRun) {
  train_once();
  const std::string metrics = slurp(dir / "run/metrics.jsonl");
  const std::string weights = slurp(dir / "weights/model.safetensors");
  expect_refused(train({"training.seed=5", "checkpoint.save=elsewhere"}),
                 {"run/metrics.jsonl: exists already"});
  EXPECT_EQ(slurp(dir / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(slurp(dir / "weights/model.safetensors"), weights);
  EXPECT_EQ(run(train({"training.seed=5", "logging.overwrite=true"})).code, 0);
  EXPECT_NE(slurp(dir / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(metrics_lines(dir / "run/metrics.jsonl"), 3);
}

TEST_F(CliTest, AFullDiskUnderTheLogsIsReportedOnceAndTrainingContinues) {
  // Half of 100 lines of a kilobyte don't fit on the disk; the weights (46 kB) do.
  const Outcome outcome = run(train({"training.train_iters=100", "logging.tensorboard=false"}),
                              {.max_file_bytes = 52 * 1024});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("LOGGING FAILED (metrics): run/metrics.jsonl: "));
  EXPECT_THAT(outcome.err, HasSubstr("File too large; training continues"));
  // A short line may still fit where a longer one doesn't.
  const std::int64_t lines = metrics_lines(dir / "run/metrics.jsonl", Numbers::some);
  EXPECT_GT(lines, 0);
  EXPECT_LT(lines, 100);
  EXPECT_THAT(outcome.err, HasSubstr("LOGGING FAILED: " + counted(100 - lines, "line") +
                                     " of the metrics of run could not be written"));
  const Outcome sample = run({"generate", "weights", "--prompt", "In ", "--tokens", "4"});
  EXPECT_EQ(sample.code, 0) << sample.err;
}

TEST_F(CliTest, AFullDiskUnderTheWeightsLeavesTheOldOnes) {
  train_once();
  const std::string weights = slurp(dir / "weights/model.safetensors");
  const auto names_before = names();
  const Outcome outcome =
      run(train({"logging.overwrite=true", "training.seed=5", "logging.tensorboard=false"}),
          {.max_file_bytes = 32 * 1024});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("trident: weights/"));
  EXPECT_THAT(outcome.err, HasSubstr("File too large"));
  EXPECT_EQ(metrics_lines(dir / "run/metrics.jsonl"), 3);
  EXPECT_EQ(slurp(dir / "weights/model.safetensors"), weights);
  for (const std::string& name : names()) EXPECT_THAT(names_before, ::testing::Contains(name));
}

TEST_F(CliTest, ARunWithoutRoomForItsWeightsDoesNotStart) {
  // The weights take 10¹³ bytes in few layers. A plan of more layers takes long under the thread
  // sanitizer.
  expect_refused(
      train({"model.hidden_size=98304", "model.num_layers=20", "model.num_attention_heads=384"}),
      {"config: /checkpoint/save: \"weights\": the weights take "});
}

TEST_F(CliTest, StepsThatAreAlwaysSkippedEndTheRunAndLeaveTheOldWeights) {
  train_once();
  const std::string weights = slurp(dir / "weights/model.safetensors");
  const auto diverging = [&](const std::string& iterations) {
    return run(train({"logging.overwrite=true", "training.on_non_finite=skip",
                      "optimizer.params.lr=3e38", "optimizer.params.weight_decay=1000",
                      "training.train_iters=" + iterations, "training.max_skipped_steps=5"}));
  };
  const Outcome outcome = diverging("30");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("5 steps in a row skipped, as many as "
                                     "training.max_skipped_steps allows"));
  const std::int64_t lines = metrics_lines(dir / "run/metrics.jsonl");
  EXPECT_GE(lines, 6);
  EXPECT_LT(lines, 10);
  EXPECT_TRUE(std::filesystem::exists(dir / "run/report.html"));
  EXPECT_TRUE(std::filesystem::exists(dir / "run/timeline.svg"));
  EXPECT_EQ(slurp(dir / "weights/model.safetensors"), weights);
  // The run is too short to give up, but it checks the weights at its end.
  std::filesystem::remove(dir / "run/report.html");
  const Outcome ended = diverging("4");
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("the weights are not finite: they are not saved, weights is"));
  EXPECT_TRUE(std::filesystem::exists(dir / "run/report.html"));
  EXPECT_EQ(slurp(dir / "weights/model.safetensors"), weights);
}

TEST_F(CliTest, DryRunWritesNothingAndPrintsConfigAndPlan) {
  const auto before = names();
  const Outcome text = run({"train", "c.json", "--dry-run"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(json::parse(text.out).at("data").at("sequence_length"), 16) << "JSON alone";
  EXPECT_THAT(text.err, HasSubstr("parameters")) << "the plan";
  const Outcome outcome = run({"train", "c.json", "--dry-run", "--format", "json"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  const json both = json::parse(outcome.out);
  EXPECT_EQ(both.at("config").at("model").at("vocab_size"), 256);
  EXPECT_EQ(both.at("plan").at("world_size"), 1);
  EXPECT_EQ(names(), before);
}

TEST_F(CliTest, DryRunRefusesAWrongRequestWithAllProblemsOfTheRun) {
  train_once();
  std::filesystem::create_directories(dir / "weights/iteration-2");
  std::vector<std::string> wrong{"data.train.0.path=nowhere", "checkpoint.load=none",
                                 "runtime.transport=mpi", "checkpoint.resume=auto"};
  std::vector<std::string> messages{
      "config: /data/train/0/path: nowhere: no such file",
      "/checkpoint/resume: \"auto\", but no checkpoint in \"weights\" is complete",
      "config: /runtime/transport: \"mpi\" needs processes that mpirun or srun started"};
  for (const bool dry : {true, false}) {
    auto arguments = train(wrong);
    if (dry) arguments.push_back("--dry-run");
    expect_refused(arguments, messages);
  }
  const auto dry = [&](const std::vector<std::string>& set) {
    auto arguments = train(set);
    arguments.push_back("--dry-run");
    return arguments;
  };
  if (find_gpus().count == 0) {
    expect_refused(dry({"runtime.device=cuda", "logging.dir=run2", "checkpoint.save=w2"}),
                   {"config: /runtime/device: \"cuda\" was asked for"});
  }
  expect_refused(dry({"logging.dir=file/run", "checkpoint.save=file/w"}),
                 {"config: /logging/dir: file/run: ", "config: /checkpoint/save: file/w: "});
  expect_refused(
      dry({"logging.dir=r2", "checkpoint.save=w2", "model.vocab_size=100"}),
      {"text.txt: a text file has 256 token ids, its bytes, but model.vocab_size is 100"});
  EXPECT_EQ(run(dry({"logging.overwrite=true", "checkpoint.resume=never"})).code, 0);
}

// Two files: one with a long word, one with a document in each line.
TEST_F(CliTest, TextsAreTokenizedByTheRunAndNotByADryRun) {
  std::filesystem::create_directories(dir / "texts");
  spit(dir / "texts/a.txt", std::string(3000, 'a') + " and so on.\n");
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += R"({"body": "document )" + std::to_string(i) + "\"}\n";
  spit(dir / "texts/b.jsonl", lines);
  const std::string tokenizer = source_dir() + "/tests/golden/tokenizers/byte_level.json";
  const std::vector<std::string> overrides = {R"(data.train=[{"path": "texts"}])",
                                              R"(data.validation=[{"path": "texts"}])",
                                              "data.tokenizer.type=file",
                                              "data.tokenizer.path=" + tokenizer,
                                              "model.vocab_size=600",
                                              "data.json_key=body",
                                              "data.sequence_length=8",
                                              "training.train_iters=2"};
  auto dry = train(overrides);
  dry.push_back("--dry-run");
  const Outcome looked = run(dry);
  EXPECT_EQ(looked.code, 0) << looked.err;
  EXPECT_THAT(looked.err, HasSubstr("texts: is not tokenized yet"));
  EXPECT_FALSE(std::filesystem::exists(dir / ".trident-cache"));
  const Outcome first = run(train(overrides));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr(" tokens of 201 documents, "));
  EXPECT_EQ(slurp(dir / "weights/tokenizer.json"), slurp(tokenizer));
  // The second run finds the tokens, although other settings have changed.
  auto again = overrides;
  again.insert(again.end(), {"logging.dir=run2", "checkpoint.save=weights2"});
  const Outcome second = run(train(again));
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("tokens of")));
  EXPECT_EQ(slurp(dir / "weights/model.safetensors"), slurp(dir / "weights2/model.safetensors"));
  again.insert(again.end(), {"logging.dir=run3", "checkpoint.save=weights3", "data.json_key=text"});
  const Outcome broken = run(train(again));
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.err,
              StartsWith("config: /data/train/0/path: texts/b.jsonl:1: has no \"text\""));
  again.back() = "model.vocab_size=300";
  const Outcome small = run(train(again));
  EXPECT_EQ(small.code, 2);
  EXPECT_THAT(small.err,
              HasSubstr("/model/vocab_size: is 300, but the tokenizer has 502 ids; use 502"));
}

TEST_F(CliTest, TokensNeedTheirVocabularySize) {
  write_pair(dir / "tokens", 200, 300);
  expect_refused(train({"data.train.0.path=tokens", R"(data.validation=[{"path": "tokens"}])"}),
                 {"config: /model/vocab_size: must be given for tokens: the number of ids of the "
                  "tokenizer that made them; tokens.bin has ids up to 300, so at least 301"});
  const Outcome given = run(train({"data.train.0.path=tokens", "model.vocab_size=301"}));
  EXPECT_EQ(given.code, 0) << given.err;
  // The run's own config.json gives the size as well.
  const Outcome again = run({"train", "run/config.json", "--set", "logging.dir=r2", "--set",
                             "checkpoint.save=w2", "--dry-run"});
  EXPECT_EQ(again.code, 0) << again.err;
  // checkpoint.load takes the size from the weights.
  json on = json::parse(slurp(dir / "run/config.user.json"));
  on.erase("model");
  on["checkpoint"] = {{"load", "weights"}};
  on["logging"]["dir"] = "r3";
  spit(dir / "on.json", on.dump());
  const Outcome loaded = run({"train", "on.json"});
  EXPECT_EQ(loaded.code, 0) << loaded.err;
}

// Returns the iterations whose progress was shown, in a run of `all` iterations.
std::vector<int> iterations_shown(const std::string& out, const std::string& all) {
  std::vector<int> shown;
  for (std::size_t at = 0; (at = out.find("/" + all + "  loss ", at)) != std::string::npos; ++at) {
    shown.push_back(std::atoi(out.c_str() + out.rfind('\n', at) + 1));
  }
  return shown;
}

TEST_F(CliTest, EveryIterationIsInMetricsAndTheIntervalThinsTheProgress) {
  const std::vector<std::string> thinned{"training.train_iters=9", "logging.log_interval=4"};
  const Outcome outcome = run(train(thinned));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(metrics_lines(dir / "run/metrics.jsonl"), 9);
  EXPECT_THAT(iterations_shown(outcome.out, "9"), ::testing::ElementsAre(1, 4, 8, 9))
      << outcome.out;
}

// The estimate of the remaining time uses this start's iterations.
TEST_F(CliTest, AResumedRunShowsItsOwnProgress) {
  const auto to = [&](const char* iterations) {
    return run(train({"checkpoint.save=w", "checkpoint.save_interval=5", "logging.log_interval=4",
                      std::string("training.train_iters=") + iterations}));
  };
  ASSERT_EQ(to("5").code, 0);
  const Outcome outcome = to("9");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(iterations_shown(outcome.out, "9"), ::testing::ElementsAre(6, 8, 9)) << outcome.out;
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\n8/9 .* 0m0[0-9]s left"));
}

TEST_F(CliTest, TheClosingSampleTakesNoMoreMemoryThanTheRunDid) {
  const std::vector<std::string> set{"model.num_layers=16",          "model.hidden_size=192",
                                     "data.sequence_length=4",       "optimizer.type=SGD",
                                     "batch.micro_batch_size=1",     "training.train_iters=1",
                                     "parallel.data_parallel_size=1"};
  const auto with_ranks = [&](const char* ranks) {
    auto all = set;
    all.push_back(std::string("parallel.pipeline_model_parallel_size=") + ranks);
    all.push_back(std::string("logging.dir=run") + ranks);
    all.push_back(std::string("checkpoint.save=weights") + ranks);
    const Outcome outcome = run(train(all));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_THAT(with_ranks("1"), HasSubstr("\nsample:\nAnd "));
  EXPECT_THAT(with_ranks("8"), Not(HasSubstr("sample:")));  // no rank had the complete model
}

TEST_F(CliTest, OverwritingRemovesOnlyFilesOfTheEarlierRun) {
  ASSERT_EQ(run(train({"logging.dump_gradients_at=[2]"})).code, 0);
  const auto in_run = [&] {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(dir / "run")) {
      all.push_back(entry.path().filename().string());
    }
    return all;
  };
  const auto events = [&] {
    const auto all = in_run();
    return std::count_if(all.begin(), all.end(), [](const std::string& name) {
      return name.starts_with("events.out.tfevents.");
    });
  };
  ASSERT_EQ(events(), 1);
  ASSERT_THAT(in_run(), ::testing::IsSupersetOf({"gradients-2.safetensors", "timeline.svg",
                                                 "trace.json", "report.html"}));
  const std::vector<std::string> others{"notes.txt", "gradients-a.safetensors", "my-trace.json",
                                        "events.out.tfevents.best"};
  for (const std::string& name : others) spit(dir / ("run/" + name), "mine");
  ASSERT_EQ(
      run(train({"logging.overwrite=true", "logging.trace=false", "logging.tensorboard=false"}))
          .code,
      0);
  EXPECT_EQ(events(), 1) << "the file of another program";
  for (const std::string& name : others) EXPECT_EQ(slurp(dir / ("run/" + name)), "mine") << name;
  const auto after = in_run();
  for (const char* old : {"gradients-2.safetensors", "timeline.svg", "trace.json"}) {
    EXPECT_THAT(after, ::testing::Not(::testing::Contains(old)));
  }
}

TEST_F(CliTest, ARunKeepsTheUsersConfigAndItsFilledInConfigFollowsANewLength) {
  ASSERT_EQ(run(train({"optimizer.params.lr=0.01"})).code, 0);
  json written = config;
  written["optimizer"]["params"]["lr"] = 0.01;
  EXPECT_EQ(json::parse(slurp(dir / "run/config.user.json")), written);
  const json ran = json::parse(slurp(dir / "run/config.json"));
  EXPECT_EQ(ran.at("scheduler").at("decay_iters"), 3);
  const Outcome dry = run({"train", "run/config.json", "--set", "training.train_iters=200", "--set",
                           "logging.dir=r2", "--set", "checkpoint.save=w2", "--dry-run"});
  ASSERT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(json::parse(dry.out).at("scheduler").at("decay_iters"), 200);
}

}  // namespace
}  // namespace trident::testing
