// Tokenizers made by `tokenizer train`, and by the commands that `init` prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "tests/app/cli.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CliTest, ATokenizerIsTrainedAndTrainedWith) {
  std::filesystem::create_directory(dir / "[ab]");
  std::filesystem::rename(dir / "text.txt", dir / "[ab]/text.txt");
  const Outcome made = run({"tokenizer", "train", "[ab]", "--vocab-size", "270", "--format", "json",
                            "--special-tokens", "[PAD]", "--special-tokens", "</s>"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json result = json::parse(made.out);
  EXPECT_EQ(result["path"], "tokenizer.json");
  EXPECT_EQ(result["vocab_size"], 270);
  EXPECT_EQ(result["merges"], 270 - 256 - 2);
  EXPECT_EQ(result["end_of_text"], 1);
  EXPECT_EQ(result["text_bytes"], small_text().size());
  const Outcome trained =
      run(train({"data.tokenizer.type=file", "data.tokenizer.path=tokenizer.json",
                 "data.train=[{\"path\": \"[ab]\"}]", "model.vocab_size=270"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome text = run({"generate", "run", "--prompt", "a", "--tokens", "3"});
  EXPECT_EQ(text.code, 0) << text.err;
}

TEST_F(CliTest, ATokenizerReplacesNothingUnasked) {
  const std::vector<std::string> command{"tokenizer", "train", "text.txt", "--vocab-size", "270"};
  const Outcome made = run(command);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, StartsWith("wrote tokenizer.json: 270 entries, 13 merges"));
  expect_refused(command, {"--out: tokenizer.json: is there already"});
  std::vector<std::string> again = command;
  again.insert(again.end(), {"--overwrite", "--min-frequency", "100000"});
  const Outcome replaced = run(again);
  ASSERT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_THAT(replaced.err, HasSubstr("the vocabulary has 257 entries, not 270: no other pair"));
  expect_refused({"tokenizer", "train", "text.txt", "--out", "no/t.json"},
                 {"--out: no/t.json: needs the path of a file that can be written"});
  expect_refused({"tokenizer", "train", "text.txt", "--out", "text.txt/t.json"},
                 {"--out: text.txt/t.json: needs the path of a file that can be written"});
  expect_refused({"tokenizer", "train", "none", "empty", "--out", "x", "--vocab-size", "200"},
                 {"none: no such file", "empty: no such file",
                  "--vocab-size: a vocabulary of 200 is too small"});
}

TEST_F(CliTest, ATokenizerThatIsStoppedLeavesNothing) {
  std::mt19937 draw(1);
  std::string text;
  for (int i = 0; i < 4'000'000; ++i) text += static_cast<char>('a' + draw() % 27);
  std::ranges::replace(text, '{', ' ');
  spit(dir / "text.txt", text);
  const auto before = names();
  const auto begin = std::chrono::steady_clock::now();
  ProgramOptions options{.signal = SIGINT};
  options.until = [&] {
    return std::chrono::steady_clock::now() - begin > std::chrono::seconds(1);
  };
  // This many merges take several seconds.
  const Outcome stopped =
      run({"tokenizer", "train", "text.txt", "--vocab-size", "9000000", "--min-frequency", "1"},
          options);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("SIGINT: stopped; no tokenizer was written"));
  EXPECT_EQ(names(), before);
}

// Returns the commands among the lines that init prints, each as words.
std::vector<std::vector<std::string>> commands_in(const std::string& printed) {
  std::vector<std::vector<std::string>> commands;
  std::istringstream lines(printed.substr(printed.find("next:\n") + 6));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> command;
    for (std::string word; words >> word && word[0] != '#';) command.push_back(word);
    if (!command.empty()) commands.push_back(command);
  }
  return commands;
}

// These overrides only change sizes. The model's architecture, vocabulary, optimizer and data stay.
const std::vector<std::string> kSmall{
    "model.num_layers=1",        "model.hidden_size=8",      "model.num_attention_heads=2",
    "model.num_query_groups=2",  "model.ffn_hidden_size=16", "data.sequence_length=16",
    "batch.global_batch_size=8", "training.train_iters=2",   "data.split=null"};

class InitPreset : public CliTest, public ::testing::WithParamInterface<const char*> {};

// The test runs the printed commands unchanged, except for the sizes of the trained model.
TEST_P(InitPreset, IsFollowedToARun) {
  std::filesystem::create_directory(dir / "texts");
  std::filesystem::copy(dir / "text.txt", dir / "texts/text.txt");
  const Outcome made = run({"init", "mine.json", "--preset", GetParam()});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(StartsWith("wrote mine.json\nnext:\n"), HasSubstr("# put ")));
  bool trained = false;
  for (std::vector<std::string> command : commands_in(made.out)) {
    ASSERT_EQ(command[0], "trident") << made.out;
    command.erase(command.begin());
    if (command[0] == "train") {
      trained = true;
      for (const std::string& set : kSmall) command.insert(command.end(), {"--set", set});
      // This preset would choose its layout by measuring.
      if (std::string(GetParam()).find('b') != std::string::npos &&
          made.out.find("GPUs") != std::string::npos) {
        command.insert(command.end(), {"--set", "parallel={}"});
      }
    }
    const Outcome done = run(command);
    ASSERT_EQ(done.code, 0) << command[0] << "\n" << done.err;
    if (command[0] == "search") {
      EXPECT_THAT(done.out, HasSubstr("MFU")) << "no layout fits";
    }
  }
  EXPECT_TRUE(trained) << made.out;
  EXPECT_EQ(metrics_lines(dir / "runs/mine/metrics.jsonl"), 2);
}

// The other presets search layouts for several seconds each. commands_cli_test.cc tests searches of
// presets.
INSTANTIATE_TEST_SUITE_P(Registry, InitPreset,
                         ::testing::Values("bytes", "gpt2_124m", "llama_135m"));
INSTANTIATE_TEST_SUITE_P(
    All, InitPreset,
    ::testing::ValuesIn(std::getenv("TRIDENT_TEST_FULL") == nullptr
                            ? std::vector<const char*>{}
                            : std::vector<const char*>{
                                  "gpt2_355m", "gpt2_774m", "llama_1b", "gpt2_1.5b", "llama_3b",
                                  "llama_8b", "llama_8b_128k", "llama_70b", "qwen3_30b_a3b",
                                  "gpt3_175b", "deepseek_v3", "llama_405b"}));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(InitPreset);

}  // namespace
}  // namespace trident::testing
