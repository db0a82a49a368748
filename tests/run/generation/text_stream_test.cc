#include "run/generation/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "base/files/file.h"
#include "support/source_dir.h"

namespace trident {
namespace {

Tokenizer golden_tokenizer(const std::string& name) {
  const std::string path = source_dir() + "/tests/golden/tokenizers/" + name + ".json";
  return Tokenizer(read_file(path), path);
}

std::vector<std::int32_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  Tokenizer::Memory memory(tokenizer);
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, memory, ids);
  return ids;
}

TEST(TextStream, GivesTheFullTextInCompleteCharacters) {
  for (const char* name : {"byte_level", "sentencepiece_bpe"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const std::string text = "a naïve 🙂 日本 text";
    TextStream stream(&tokenizer, {}, {});
    std::string shown;
    for (const std::int32_t id : ids_of(tokenizer, text)) {
      const std::string more = stream.add(id);
      EXPECT_EQ(more.find("\xef\xbf\xbd"), std::string::npos) << name << ": half a character";
      shown += more;
    }
    EXPECT_EQ(shown + stream.finish(), text) << name;
  }
}

// Each part of a long text is the same as in the text decoded at once.
TEST(TextStream, GivesTheTextOfManyTokens) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "word " + std::to_string(i * 7919) + ", 日本 🙂 naïve\n ";
  for (const char* name : {"byte_level", "sentencepiece_bpe", "metaspace", "unigram"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const std::vector<std::int32_t> ids = ids_of(tokenizer, text);
    for (const std::size_t prompt : {std::size_t{0}, ids.size() - 100}) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(prompt);
      const std::vector<std::int32_t> before(ids.begin(), begin);
      TextStream stream(&tokenizer, before, {});
      std::string shown;
      for (auto id = begin; id != ids.end(); ++id) shown += stream.add(*id);
      shown += stream.finish();
      EXPECT_TRUE(tokenizer.decode(ids).ends_with(shown)) << name << ": " << shown;
      EXPECT_GE(shown.size() + tokenizer.decode(before).size(), tokenizer.decode(ids).size());
    }
  }
}

TEST(TextStream, BytesComeInCompleteCharacters) {
  const std::string text = "naïve 🙂\xff日";
  TextStream stream(nullptr, {}, {});
  std::vector<std::string> parts;
  for (const char c : text) parts.push_back(stream.add(static_cast<unsigned char>(c)));
  EXPECT_THAT(parts, ::testing::ElementsAre("n", "a", "", "ï", "v", "e", " ", "", "", "", "🙂",
                                            "\xff", "", "", "日"));
}

// A run of byte tokens: two complete characters, and then a byte that belongs to no character.
TEST(TextStream, AWrongByteKeepsTheCharactersBeforeIt) {
  const Tokenizer tokenizer = golden_tokenizer("sentencepiece_bpe");
  TextStream stream(&tokenizer, {}, {});
  std::string shown;
  for (const unsigned byte : {0xe6u, 0x98u, 0xa5u, 0xe7u, 0x9cu, 0xa0u, 0xffu}) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    const auto id = tokenizer.id_of(name);
    ASSERT_TRUE(id) << name;
    shown += stream.add(*id);
  }
  EXPECT_EQ(shown + stream.finish(), "春眠\xef\xbf\xbd");
}

TEST(TextStream, ACharacterMayBeginInThePrompt) {
  const std::string text = "🙂 yes";
  TextStream stream(nullptr, {0xf0, 0x9f}, {});
  std::string shown;
  for (const char c : text.substr(2)) shown += stream.add(static_cast<unsigned char>(c));
  EXPECT_EQ(shown, text);
}

TEST(TextStream, BytesThatBecomeNoCharacterAreGivenAllTheSame) {
  const Tokenizer tokenizer = golden_tokenizer("byte_level");
  const std::vector<std::int32_t> ids = ids_of(tokenizer, "🙂");
  ASSERT_GT(ids.size(), 1u);
  TextStream stream(&tokenizer, {}, {});
  std::string shown;
  for (int i = 0; i < 40; ++i) shown += stream.add(ids.front());
  EXPECT_NE(shown, "");
  shown += stream.finish();
  EXPECT_EQ(shown, tokenizer.decode(std::vector(40, ids.front())));
}

TEST(TextStream, ThePromptIsNotGivenAgain) {
  const Tokenizer tokenizer = golden_tokenizer("byte_level");
  TextStream stream(&tokenizer, ids_of(tokenizer, "The prompt"), {});
  std::string shown;
  for (const std::int32_t id : ids_of(tokenizer, " goes on")) shown += stream.add(id);
  EXPECT_EQ(shown + stream.finish(), " goes on");
}

TEST(TextStream, AStopStringEndsTheTextBeforeIt) {
  TextStream stream(nullptr, {}, {"END", "\n\n"});
  std::string shown;
  for (const char c : std::string("an E, an EN, a line\nand END of")) {
    shown += stream.add(static_cast<unsigned char>(c));
    EXPECT_EQ(shown.find("END"), std::string::npos);
    if (stream.stopped()) break;
  }
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(shown, "an E, an EN, a line\nand ");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, ABeginningOfAStopStringIsGivenAtTheEnd) {
  TextStream stream(nullptr, {}, {"END"});
  std::string shown;
  for (const char c : std::string("the EN")) shown += stream.add(static_cast<unsigned char>(c));
  EXPECT_EQ(shown, "the ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.finish(), "EN");
}

}  // namespace
}  // namespace trident
