#include "datasets/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "support/source_dir.h"

namespace trident {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

json golden(const std::string& name) {
  const std::string path = source_dir() + "/tests/golden/tokenizers/" + name + ".json";
  return parse_json(read_file(path), path);
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
  Tokenizer::Memory memory(tokenizer);
  Ids ids;
  tokenizer.encode(text, memory, ids);
  return ids;
}

// Small tokenizers of six kinds, with the tokens that `tokenizers` 0.23.3 makes of difficult texts
// (tests/peers/tokenizer_peer.py --write-golden).
class GoldenTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenTokenizer()
      : tokenizer(json_text(golden(GetParam())), "t.json"),
        cases(golden(std::string(GetParam()) + ".cases")) {}

  Tokenizer tokenizer;
  json cases;
};

TEST_P(GoldenTokenizer, GivesTheSameIds) {
  Tokenizer::Memory memory(tokenizer);
  for (int again = 0; again < 2; ++again) {  // the second time from its memory
    for (const json& one : cases) {
      const auto text = one["text"].get<std::string>();
      Ids ids;
      tokenizer.encode(text, memory, ids);
      EXPECT_EQ(ids, one["ids"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer.encode_prompt(text), one["prompt"].get<Ids>()) << text;
    }
  }
}

TEST_P(GoldenTokenizer, GivesTheSameTextBack) {
  for (const json& one : cases) {
    const auto ids = one["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.decode(ids), one["decoded"].get<std::string>()) << one["text"];
    EXPECT_EQ(tokenizer.decode(ids, false), one["whole"].get<std::string>()) << one["text"];
  }
}

TEST_P(GoldenTokenizer, PartsHaveTheIdsOfTheUndividedText) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    for (const json& one : cases) text += one["text"].get<std::string>() + "\nAnd so on, to word ";
  }
  Tokenizer::Memory memory(tokenizer);
  Ids ids;
  std::size_t begin = 0, parts = 0;
  for (; begin < text.size(); ++parts) {
    const std::size_t end =
        std::min(tokenizer.next_split_point(text, begin + 1, memory), text.size());
    tokenizer.encode(std::string_view(text).substr(begin, end - begin), memory, ids, begin > 0);
    begin = end;
  }
  EXPECT_EQ(ids, encoded(tokenizer, text));
  EXPECT_GT(parts, 100u);
}

TEST_P(GoldenTokenizer, KnowsItsTokens) {
  EXPECT_GT(tokenizer.vocab_size(), 100);
  EXPECT_FALSE(tokenizer.token_of(static_cast<std::int32_t>(tokenizer.vocab_size())));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = tokenizer.token_of(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(tokenizer.id_of(*token), id);
  }
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(50));
}

INSTANTIATE_TEST_SUITE_P(Registry, GoldenTokenizer,
                         ::testing::Values("byte_level", "metaspace", "sentencepiece_bpe",
                                           "unigram", "word_piece", "words"));

// A tokenizer.json with one change, and its error.
struct Broken {
  const char* name;
  const char* file;
  const char* pointer;  // the value that is replaced or added
  json value;
  const char* problem;
};

class BrokenTokenizer : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenTokenizer, IsRefusedByName) {
  const Broken& broken = GetParam();
  json document = golden(broken.file);
  document[json::json_pointer(broken.pointer)] = broken.value;
  try {
    const Tokenizer tokenizer(json_text(document), "t.json");
    FAIL() << "was taken";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("t.json: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(broken.problem));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Changes, BrokenTokenizer,
    ::testing::Values(
        Broken{"Version", "words", "/version", "2.0", "/version: needs \"1.0\""},
        Broken{"Key", "words", "/extra", 1, "/extra: isn't a key that this program knows here"},
        Broken{"Model", "words", "/model/type", "Neural",
               "/model/type: \"Neural\" isn't supported; this program knows BPE, Unigram"},
        Broken{"ModelKey", "words", "/model/magic", true, "/model/magic: isn't a key"},
        Broken{"NoModel", "words", "/model", nullptr, "/model: needs an object"},
        Broken{"Normalizer", "words", "/normalizer/normalizers/1/type", "Upper",
               "/normalizer/normalizers/1/type: \"Upper\" isn't supported"},
        Broken{"PreTokenizer", "words", "/pre_tokenizer/pretokenizers/0/type", "UnicodeScripts",
               "/pre_tokenizer/pretokenizers/0/type: \"UnicodeScripts\" isn't supported"},
        Broken{"Decoder", "unigram", "/decoder/type", "CTC", "/decoder/type: \"CTC\""},
        Broken{"Processor", "unigram", "/post_processor/type", "New", "/post_processor/type"},
        Broken{"Id", "words", "/model/vocab/[UNK]", -1, "/model/vocab/[UNK]: needs a whole number"},
        Broken{"HugeId", "words", "/model/vocab/[UNK]", 4294967296, "from 0 to 2^31 - 1"},
        Broken{"IdTwice", "words", "/model/vocab/again", 3, "has id 3, as another token"},
        Broken{"NoVocabulary", "words", "/model/vocab", json::object(), "/model/vocab: is empty"},
        Broken{"Merge", "byte_level", "/model/merges/0", json({"a"}), "number 1 isn't two tokens"},
        Broken{"MergeOfNothing", "byte_level", "/model/merges/5", json({"a", "☃"}),
               "number 6 has ☃, which isn't in the vocabulary"},
        Broken{"Dropout", "byte_level", "/model/dropout", 0.1, "/model/dropout: isn't supported"},
        Broken{"AddedId", "byte_level", "/added_tokens/0/id", 17,
               "/added_tokens/0/id: of <|begin_of_text|> is 17, but the vocabulary's is 0"},
        Broken{"Regex", "byte_level", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a",
               "/pattern/Regex: (a is no regular expression: end pattern with unmatched"},
        Broken{"Behavior", "byte_level", "/pre_tokenizer/pretokenizers/0/behavior", "Dropped",
               "/behavior: needs Removed, Isolated"},
        Broken{"Score", "unigram", "/model/vocab/7/1", "low", "number 8 isn't [token, score]"},
        Broken{"Unknown", "unigram", "/model/unk_id", 9999, "/model/unk_id: is 9999"},
        Broken{"Base64", "unigram", "/normalizer/normalizers/0/precompiled_charsmap", "*",
               "/precompiled_charsmap: isn't base64"},
        Broken{"CutMap", "unigram", "/normalizer/normalizers/0/precompiled_charsmap", "AQAAAAAA",
               "/precompiled_charsmap: is no map of SentencePiece's"},
        Broken{"Bomb", "sentencepiece_bpe", "/normalizer/normalizers/1/content",
               std::string(300, 'a'), "/content: is longer than 256 bytes"}),
    [](const auto& tested) { return tested.param.name; });

TEST(Tokenizer, OtherTextIsNoTokenizer) {
  for (const char* text : {"", "{}", "[]", "{\"model\": 3}", "not JSON", "\xff"}) {
    EXPECT_THROW(Tokenizer(text, "t.json"), RequestError) << text;
  }
}

// Like `tokenizers`, the tokenizer refuses a text that its normalizers enlarge without bounds.
TEST(Tokenizer, ATextThatGrowsWithoutBoundsIsRefused) {
  json document = golden("words");
  const json doubling = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaa"}};
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 30; ++i) document["normalizer"]["normalizers"].push_back(doubling);
  const Tokenizer tokenizer(json_text(document), "t.json");
  EXPECT_EQ(encoded(tokenizer, "b").size(), 1u);
  EXPECT_THROW(encoded(tokenizer, "aaaaaaaa"), Error);
}

// As in `tokenizers`, white space that is stripped after a token may contain the beginnings of
// other tokens. The text continues after the last of these.
TEST(Tokenizer, StrippedSpaceMayHoldOtherTokens) {
  json document = golden("words");
  document["normalizer"] = nullptr;
  json& added = document["added_tokens"];
  auto id = Tokenizer(json_text(document), "t.json").vocab_size();
  for (const char* content : {"<right>", "\t"}) {
    json token = added[0];
    token["content"] = content;
    token["id"] = id++;
    token["normalized"] = false;
    token["rstrip"] = std::string(content) == "<right>";
    added.push_back(token);
  }
  const Tokenizer tokenizer(json_text(document), "t.json");
  const auto right = static_cast<std::int32_t>(id - 2), tab = static_cast<std::int32_t>(id - 1);
  EXPECT_EQ(encoded(tokenizer, "<right> \t  <right>"), (Ids{right, tab, right}));
  EXPECT_EQ(encoded(tokenizer, "<right>\t\t"), (Ids{right, tab, tab}));
}

// As in `tokenizers`, ids of added tokens start at the number of entries, whatever the largest id
// is, and also with duplicate pieces.
TEST(Tokenizer, AddedTokensFollowTheEntries) {
  for (const char* name : {"words", "unigram"}) {
    json document = golden(name);
    json& vocab = document["model"]["vocab"];
    if (vocab.is_object()) {
      vocab["far"] = 5000;
    } else {
      vocab.push_back(vocab.back());
    }
    json token = document["added_tokens"][0];
    token["content"] = "<next>";
    token["id"] = vocab.size();
    document["added_tokens"] = {token};
    const Tokenizer tokenizer(json_text(document), "t.json");
    EXPECT_EQ(tokenizer.id_of("<next>"), static_cast<std::int32_t>(vocab.size())) << name;
  }
}

TEST(Tokenizer, AMergeAcrossASpaceLeavesNoSplitPoint) {
  json document = golden("sentencepiece_bpe");
  document["model"]["vocab"]["e\u2581a"] = 100000;
  document["model"]["merges"].push_back({"e", "\u2581a"});
  const Tokenizer tokenizer(json_text(document), "t.json");
  Tokenizer::Memory memory(tokenizer);
  EXPECT_EQ(tokenizer.next_split_point("some words of a text", 1, memory), std::string::npos);
}

// A setting of a tokenizer with which text can't be split between words.
struct Unsplittable {
  const char* name;
  const char* file;
  const char* pointer;
  json value;
};

class UnsplittableTokenizer : public ::testing::TestWithParam<Unsplittable> {};

TEST_P(UnsplittableTokenizer, FindsNoSplitPoint) {
  const Unsplittable& changed = GetParam();
  const std::string text = "some words of a text";
  json document = golden(changed.file);
  const auto next_split_point = [&] {
    const Tokenizer tokenizer(json_text(document), "t.json");
    Tokenizer::Memory memory(tokenizer);
    return tokenizer.next_split_point(text, 1, memory);
  };
  EXPECT_EQ(next_split_point(), 4u);
  document[json::json_pointer(changed.pointer)] = changed.value;
  EXPECT_EQ(next_split_point(), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Changes, UnsplittableTokenizer,
    ::testing::Values(
        // The first and last characters of a word are marked, and a complete text is one word.
        Unsplittable{"WordPrefix", "sentencepiece_bpe", "/model/continuing_subword_prefix", "##"},
        Unsplittable{"WordSuffix", "sentencepiece_bpe", "/model/end_of_word_suffix", "</w>"},
        Unsplittable{"FullWordsFirst", "sentencepiece_bpe", "/model/ignore_merges", true},
        Unsplittable{"SpaceBecomesAnother", "sentencepiece_bpe",
                     "/normalizer/normalizers/1/content", "_"},
        Unsplittable{"OtherNormalizer",
                     "byte_level",
                     "/normalizer",
                     {{"type", "Replace"}, {"pattern", {{"String", "s w"}}}, {"content", " "}}},
        Unsplittable{"OtherPattern", "byte_level", "/pre_tokenizer/pretokenizers/0/pattern/Regex",
                     ".+"},
        Unsplittable{"OtherBehavior", "byte_level", "/pre_tokenizer/pretokenizers/0/behavior",
                     "MergedWithNext"},
        Unsplittable{"TakesSpace", "byte_level", "/added_tokens/0/rstrip", true}),
    [](const auto& tested) { return tested.param.name; });

// The vocabulary has no unknown token and lacks one character.
TEST(Tokenizer, ACharacterWithoutATokenIsAnError) {
  json document = golden("words");
  document["model"]["unk_token"] = "absent";
  const Tokenizer tokenizer(json_text(document), "t.json");
  EXPECT_THROW(encoded(tokenizer, "☃"), Error);
}

}  // namespace
}  // namespace trident
