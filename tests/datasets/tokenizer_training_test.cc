#include "datasets/tokenizer_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/files/file.h"
#include "datasets/tokenizer/gpt_pattern.h"
#include "datasets/tokenizer/tokenizer.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::spit;
using testing::TempDir;

std::string golden(const std::string& name) {
  return source_dir() + "/tests/golden/tokenizers/trained." + name;
}

TokenizerTraining training_on(const std::string& path) {
  TokenizerTraining request{.paths = {path}, .pattern = kGpt2Pattern};
  request.bpe.vocab_size = 800;
  request.bpe.special_tokens = {"<|endoftext|>"};
  request.counting.threads = 2;
  return request;
}

std::string spoiled(const std::string& text) {
  return text.substr(0, 5) + "\xff" + text.substr(5);
}

// A text of several blocks, with rare and frequent words.
std::string words_text(std::size_t bytes) {
  std::mt19937 draw(3);
  std::string text;
  while (text.size() < bytes) {
    for (unsigned letters = draw() % 9; letters > 0; --letters) text += "etaoin"[draw() % 6];
    text += draw() % 8 == 0 ? "\n" : " ";
  }
  return text;
}

// Compares with the files that Hugging Face's trainer makes of the same texts
// (tests/peers/tokenizer_peer.py --write-golden), byte by byte.
TEST(TokenizerTraining, GivesTheFilesOfHuggingFace) {
  EXPECT_EQ(train_tokenizer(training_on(golden("txt"))).text, read_file(golden("by_line.json")));
  TokenizerTraining request = training_on(golden("jsonl"));
  for (const NamedPattern& one : named_gpt_patterns()) {
    if (one.name == "llama3") request.pattern = one.regex;
  }
  request.bpe = {
      .vocab_size = 600,
      .min_frequency = 3,
      .max_token_length = 6,
      .special_tokens = {"<|begin_of_text|>", "in", "<|end_of_text|>", "<|begin_of_text|>", "!"}};
  EXPECT_EQ(train_tokenizer(request).text, read_file(golden("llama3.json")));
}

TEST(TokenizerTraining, ReadsTheFilesThatTrainingReads) {
  TempDir dir;
  const std::string text = read_file(golden("txt")), expected = read_file(golden("by_line.json"));
  std::filesystem::create_directory(dir / "texts");
  gzFile file = ::gzopen((dir / "texts/a.txt.gz").c_str(), "wb");
  ASSERT_EQ(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())), std::ssize(text));
  ASSERT_EQ(::gzclose(file), Z_OK);
  spit(dir / "texts/picture.png", "no text");
  std::vector<std::string> messages;
  TokenizerTraining request = training_on(dir / "texts");
  request.report = [&](const std::string& line) { messages.push_back(line); };
  const TrainedTokenizer trained = train_tokenizer(request);
  EXPECT_EQ(trained.text, expected);
  EXPECT_EQ(trained.text_bytes, text.size());
  EXPECT_THAT(messages, ::testing::ElementsAre(HasSubstr("left out: ")));
  EXPECT_EQ(train_tokenizer(training_on(dir / "texts/*.gz")).text, expected);
}

// The text is read in lines or as a whole, and with little memory.
TEST(TokenizerTraining, ThreadsAndBlocksChangeNothing) {
  TempDir dir;
  const std::string text = words_text(3'000'000);
  spit(dir / "text.txt", text);
  for (const bool lines : {true, false}) {
    for (const std::uint64_t memory : {std::uint64_t{1} << 32, std::uint64_t{1} << 21}) {
      std::string first;
      for (const int threads : {1, 2, 5}) {
        TokenizerTraining request = training_on(dir / "text.txt");
        request.counting.threads = threads;
        request.counting.by_line = lines;
        request.counting.memory = memory;
        const TrainedTokenizer trained = train_tokenizer(request);
        if (first.empty()) first = trained.text;
        EXPECT_EQ(trained.text, first);
        EXPECT_EQ(trained.left_out > 0, memory < 1u << 30);
        EXPECT_EQ(trained.text_bytes, text.size());
      }
    }
  }
}

TEST(TokenizerTraining, OneLineWithoutAnEndIsRead) {
  TempDir dir;
  std::string text = words_text(2'000'000);
  std::ranges::replace(text, '\n', ' ');
  spit(dir / "line.txt", text);
  spit(dir / "lines.jsonl", "{\"text\": \"" + text + "\"}\n");
  EXPECT_EQ(train_tokenizer(training_on(dir / "line.txt")).text,
            train_tokenizer(training_on(dir / "lines.jsonl")).text);
}

TEST(TokenizerTraining, OurReaderTakesTheFile) {
  const Tokenizer tokenizer(train_tokenizer(training_on(golden("txt"))).text, "trained");
  EXPECT_EQ(tokenizer.vocab_size(), 800);
  EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), 0);
  EXPECT_TRUE(tokenizer.is_special(0));
  const std::string text = "don't stop, ünïcode \xf0\x9f\x99\x82\n";
  Tokenizer::Memory memory(tokenizer);
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, memory, ids);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(TokenizerTraining, RefusesWithAllProblems) {
  TempDir dir;
  spit(dir / "pair.bin", "");
  spit(dir / "pair.idx", "");
  TokenizerTraining request = training_on(dir / "nowhere");
  request.paths.push_back(dir / "pair");
  request.bpe.vocab_size = 256;
  request.bpe.special_tokens = {"", "\xff"};
  request.pattern = "(a";
  const auto message = message_of<RequestError>([&] { train_tokenizer(request); });
  for (const char* problem :
       {"nowhere: no such file", "pair: is a .bin/.idx pair, already tokenized",
        "--vocab-size: a vocabulary of 256", "--special-tokens: a token can't be empty",
        "--special-tokens: \\xff isn't UTF-8", "--pattern: (a is no regular expression"}) {
    EXPECT_THAT(message, HasSubstr(problem));
  }
}

TEST(TokenizerTraining, HostileTextsAreNamedWithTheirPlace) {
  TempDir dir;
  const auto refusal = [&](const std::string& name, const std::string& contents) {
    spit(dir / name, contents);
    return message_of<RequestError>([&] { train_tokenizer(training_on(dir / name)); });
  };
  EXPECT_THAT(refusal("empty.txt", ""), HasSubstr("the texts contain no words"));
  EXPECT_THAT(refusal("bad.txt", "line\n" + spoiled("a line that isn't UTF-8")),
              HasSubstr("bad.txt:2: byte 6 of it, 0xff, isn't UTF-8"));
  EXPECT_THAT(refusal("bad.jsonl", "{\"text\": \"a\"}\n{\"tex"), HasSubstr("bad.jsonl:2: "));
  EXPECT_THAT(refusal("other.jsonl", "{\"words\": \"a\"}\n"), HasSubstr("has no \"text\""));
  EXPECT_THAT(refusal("cut.txt.gz", "\x1f\x8b\x08"), HasSubstr("cut.txt.gz: "));
  TokenizerTraining request = training_on(dir / "bad.txt");
  request.replace_errors = true;
  EXPECT_GT(train_tokenizer(request).words, 5u);
}

}  // namespace
}  // namespace trident
