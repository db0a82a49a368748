// Tests files for llama.cpp. tests/peers/gguf_peer.py reads complete ones with other programs'
// readers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/dtype.h"
#include "engine/setup/text_setup.h"
#include "formats/gguf/gguf_file.h"
#include "formats/gguf/gguf_vocabulary.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string stored(const std::vector<float>& values, GgufType type) {
  const GgufTensor tensor{"x", {std::ssize(values)}, type};
  std::vector<std::byte> out(tensor.bytes());
  to_gguf(values, type, out);
  return bytes_of(out);
}

TEST(GgufFile, HasTheFormatsBytes) {
  const TempDir dir;
  GgufKeys keys;
  keys.set("name", "ab");
  keys.set("list", std::vector<std::int32_t>{-1});
  GgufWriter writer(dir / "x.gguf", keys,
                    {{"m", {2, 3}, GgufType::f32}, {"v", {1}, GgufType::f16}});
  const std::vector<float> rows{1, 2, 3};
  writer.append(0, std::as_bytes(std::span(rows)));
  writer.append(1, std::vector<std::byte>(2, std::byte{7}));
  EXPECT_THROW(writer.finish(false), Error) << "a row is missing";
  EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
  writer.append(0, std::as_bytes(std::span(rows)));
  writer.finish(false);

  const auto number = []<class T>(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto text = [&](const std::string& value) {
    return number(std::uint64_t{value.size()}) + value;
  };
  const auto u32 = [&](std::uint32_t value) { return number(value); };
  const auto u64 = [&](std::uint64_t value) { return number(value); };
  std::string expected = "GGUF" + u32(3) + u64(2) + u64(2);
  expected += text("name") + u32(8) + text("ab");
  expected += text("list") + u32(9) + u32(5) + u64(1) + number(std::int32_t{-1});
  expected += text("m") + u32(2) + u64(3) + u64(2) + u32(0) + u64(0);  // columns first
  expected += text("v") + u32(1) + u64(1) + u32(1) + u64(32);
  expected.resize((expected.size() + 31) / 32 * 32);
  for (int row = 0; row < 2; ++row) {
    for (const float value : rows) expected += number(value);
  }
  expected.resize((expected.size() + 31) / 32 * 32);
  expected += "\x07\x07" + std::string(30, '\0');
  EXPECT_EQ(slurp(dir / "x.gguf"), expected);
}

TEST(GgufFile, LeavesAFileThatAnotherProgramHasWrittenMeanwhile) {
  const TempDir dir;
  {
    GgufWriter writer(dir / "x.gguf", {}, {});
    spit(dir / "x.gguf", "other bytes");
    EXPECT_THROW(writer.finish(false), Error);
  }
  EXPECT_EQ(slurp(dir / "x.gguf"), "other bytes");
  const auto files = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing else is left";
  GgufWriter writer(dir / "x.gguf", {}, {});
  writer.finish(true);
  EXPECT_EQ(slurp(dir / "x.gguf").substr(0, 4), "GGUF");
}

TEST(GgufFile, RoundsBlocksByTheirLargestValue) {
  std::vector<float> values(32, 0.0f);
  values[0] = -254;
  values[1] = 127;
  values[2] = 1;  // half a step rounds away from zero
  values[3] = -0.9f;
  std::string expected(2, '\0');
  const Float16 scale(2.0f);
  std::memcpy(expected.data(), &scale, sizeof scale);
  expected += std::string("\x81\x40\x01\x00", 4) + std::string(28, '\0');
  EXPECT_EQ(stored(values, GgufType::q8_0), expected);
  EXPECT_EQ(stored(std::vector<float>(64, 0.0f), GgufType::q8_0), std::string(68, '\0'));
  EXPECT_TRUE(fits(GgufType::q8_0, 64));
  EXPECT_FALSE(fits(GgufType::q8_0, 48));
}

TEST(GgufFile, RefusesValuesThatATypeCanNotHold) {
  for (const GgufType type : {GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q8_0}) {
    for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(32, 1.0f);
      values[31] = value;
      EXPECT_THROW(stored(values, type), Error);
    }
  }
  EXPECT_THROW(stored({65520}, GgufType::f16), Error);
  EXPECT_EQ(stored({65520}, GgufType::f32).size(), 4u);
  EXPECT_THROW(stored(std::vector<float>(32, 1e8f), GgufType::q8_0), Error) << "its scale is F16";
}

// SentencePiece's BPE with a token for each byte.
json sentence_piece(const std::vector<std::pair<std::string, std::string>>& merges) {
  json vocabulary{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[fmt::format("<0x{:02X}>", byte)] = vocabulary.size();
  }
  for (const char* token : {"\u2581", "a", "b", "c"}) vocabulary[token] = vocabulary.size();
  json list = json::array();
  for (const auto& [left, right] : merges) {
    vocabulary.emplace(left + right, vocabulary.size());
    list.push_back({left, right});
  }
  const auto special = [](int id, const char* text) {
    return json{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  return {{"version", "1.0"},
          {"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", list}}}};
}

GgufVocabulary vocabulary_of(const json& document, std::int64_t entries,
                             const std::vector<std::int32_t>& ends = {2}) {
  const std::string text = document.dump();
  return gguf_vocabulary(Tokenizer(text, "t"), text, "t", entries, {}, ends);
}

// The notes of a conversion after a change of the tokenizer.
std::vector<std::string> notes_of(const std::function<void(json&)>& change,
                                  const std::vector<std::int32_t>& ends = {2}) {
  json document = sentence_piece({{"a", "b"}, {"ab", "c"}});
  change(document);
  const std::string text = document.dump();
  return gguf_vocabulary(Tokenizer(text, "t"), text, "t", 270, 1, ends).notes;
}

TEST(GgufVocabulary, NotesDifferencesOfLlamaCpp) {
  EXPECT_THAT(notes_of([](json&) {}), IsEmpty());
  const auto metaspace = [](const char* scheme) {
    return [=](json& document) {
      document["normalizer"] = nullptr;
      document["pre_tokenizer"] = {{"type", "Metaspace"},
                                   {"replacement", "\u2581"},
                                   {"prepend_scheme", scheme},
                                   {"split", false}};
    };
  };
  EXPECT_THAT(notes_of(metaspace("never")), IsEmpty());
  EXPECT_THAT(notes_of(metaspace("always")), ElementsAre(HasSubstr("begins with a space")));
  EXPECT_THAT(notes_of(metaspace("first")), ElementsAre(HasSubstr("behind added tokens")));
  EXPECT_THAT(notes_of([](json& document) { document["added_tokens"][1]["lstrip"] = true; }),
              ElementsAre(HasSubstr("takes no white space beside them")));
  EXPECT_THAT(notes_of([](json& document) { document["added_tokens"][1]["normalized"] = true; }),
              ElementsAre(HasSubstr("in the text as it is")));
  EXPECT_THAT(notes_of([](json& document) { document["model"]["vocab"]["<|im_end|>"] = 265; }),
              ElementsAre(HasSubstr("takes \"<|im_end|>\" in texts for one token"),
                          HasSubstr("also ends texts at \"<|im_end|>\"")));
  EXPECT_THAT(notes_of([](json& document) { document["model"]["vocab"]["<|start|>"] = 265; }),
              ElementsAre(HasSubstr("takes \"<|start|>\" in texts for one token")));
  EXPECT_THAT(notes_of([](json& document) { document["model"]["vocab"]["ax"] = 265; }),
              ElementsAre(HasSubstr("joins any two tokens")))
      << "x has no token, but is a character";
  EXPECT_THAT(notes_of([](json&) {}, {2, 1}), ElementsAre(HasSubstr("end at several tokens")));
  EXPECT_THAT(notes_of([](json&) {}, {1}), ElementsAre(HasSubstr("also ends texts at \"</s>\"")))
      << "the config's end of text is another one";
  EXPECT_THAT(notes_of([](json&) {}, {2, 2}), IsEmpty());
  EXPECT_THAT(notes_of([](json&) {}, {99999, 2}), IsEmpty()) << "the first is none";
}

TEST(GgufVocabulary, TakesTheLastOfEqualMerges) {
  const GgufVocabulary made =
      vocabulary_of(sentence_piece({{"b", "c"}, {"a", "b"}, {"b", "c"}}), 270);
  const auto score = [&](const std::string& token) {
    return made.scores[static_cast<std::size_t>(std::ranges::find(made.tokens, token) -
                                                made.tokens.begin())];
  };
  EXPECT_GT(score("ab"), score("bc"));
}

// In the tokenizer, a byte without a token becomes the unknown token; llama.cpp drops it.
TEST(GgufVocabulary, NeedsATokenForEachByteWhereOneIsUnknown) {
  json document = json::parse(byte_tokenizer());
  document["pre_tokenizer"]["use_regex"] = true;
  EXPECT_EQ(vocabulary_of(document, 256).model, "gpt2");
  document["model"]["unk_token"] = "a";
  const GgufVocabulary complete = vocabulary_of(document, 256);
  EXPECT_EQ(complete.model, "gpt2");
  EXPECT_THAT(complete.kinds, ::testing::Each(1)) << "\"a\" stays a word";
  document["model"]["vocab"].erase("b");
  EXPECT_EQ(vocabulary_of(document, 256).model, "none");
}

TEST(GgufVocabulary, ScoresSentencePiecesMergesInTheirOrder) {
  const GgufVocabulary made = vocabulary_of(sentence_piece({{"a", "b"}, {"ab", "c"}}), 270, {});
  EXPECT_EQ(made.model, "llama");
  EXPECT_TRUE(made.add_space);
  const auto score = [&](const std::string& token) {
    return made.scores[static_cast<std::size_t>(std::ranges::find(made.tokens, token) -
                                                made.tokens.begin())];
  };
  EXPECT_GT(score("ab"), score("abc"));
  EXPECT_GT(score("abc"), score("a"));
  EXPECT_EQ(made.kinds[0], 2);  // unknown
  EXPECT_EQ(made.kinds[1], 3);  // control
  EXPECT_EQ(made.kinds[3], 6);  // a byte
  EXPECT_EQ(made.tokens.size(), 270u);
  EXPECT_EQ(made.kinds.back(), 5) << "no text becomes it";
  EXPECT_EQ(made.end, std::int32_t{265}) << "where no end is known, one that never comes";
  EXPECT_THAT(made.notes, ElementsAre(HasSubstr("also ends texts at \"</s>\"")));
}

TEST(GgufVocabulary, NotesMergesThatLlamaCppWouldAdd) {
  // "a" + "bc" makes the same token.
  const GgufVocabulary made =
      vocabulary_of(sentence_piece({{"a", "b"}, {"ab", "c"}, {"b", "c"}}), 270);
  EXPECT_THAT(made.notes, ElementsAre(HasSubstr("joins any two tokens")));
  EXPECT_EQ(made.model, "llama");
}

TEST(GgufVocabulary, IsLeftOutWhereLlamaCppSplitsTextInAnotherWay) {
  json document = sentence_piece({{"a", "b"}});
  document["model"]["byte_fallback"] = false;
  EXPECT_EQ(vocabulary_of(document, 270).model, "none");
  document = sentence_piece({{"a", "b"}, {"ab", "\u2581"}});
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  EXPECT_THAT(vocabulary_of(document, 270).notes, ElementsAre(HasSubstr("a token spans a split")));
  EXPECT_THROW(vocabulary_of(document, 200), RequestError) << "more ids than the model has";
}

TEST(GgufVocabulary, OfBytesAreBytes) {
  const GgufVocabulary made = gguf_bytes(258, {}, {300, 7});
  EXPECT_EQ(made.model, "rwkv");
  EXPECT_EQ(made.tokens[10], "\\x0a");
  EXPECT_EQ(made.kinds[257], 5);
  EXPECT_EQ(made.end, 7);
  EXPECT_THAT(std::vector(made.tokens.begin() + 256, made.tokens.end()),
              ::testing::Each(::testing::StartsWith("\\xff\\xff")));
}

}  // namespace
}  // namespace trident::testing
