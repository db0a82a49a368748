// Tests tokenization of texts of all kinds, and the cache of the tokens.
#include "datasets/tokenize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "datasets/indexed_source.h"
#include "datasets/token_cache.h"
#include "datasets/token_source.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::slurp;
using testing::spit;
using ::testing::StartsWith;
using testing::TempDir;

using Ids = std::vector<std::int32_t>;

DocumentEncoder golden_encoder(const std::string& name = "byte_level") {
  const std::string path = source_dir() + "/tests/golden/tokenizers/" + name + ".json";
  DocumentEncoder encoder{.tokenizer_text = read_file(path)};
  encoder.tokenizer = std::make_shared<Tokenizer>(encoder.tokenizer_text, path);
  encoder.end_of_document = 1;
  return encoder;
}

std::string gzipped(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream stream = {};
  ::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// A frame of one block that isn't compressed, with a window of 2^window_log bytes (RFC
// 8878, 3.1.1).
std::string zstandard_frame(int window_log, const std::string& text) {
  const auto header = static_cast<std::uint32_t>(text.size() << 3 | 1);  // the last, raw
  std::string frame("\x28\xb5\x2f\xfd\0", 5);
  frame += static_cast<char>((window_log - 10) << 3);
  for (int i = 0; i < 3; ++i) frame += static_cast<char>(header >> (8 * i) & 0xff);
  return frame + text;
}

// A text of several blocks, with line ends, long words and other scripts.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "Line " + std::to_string(i * 7919 % 10007) + " of ünïcode and 日本語 text,\tdon't stop";
    text += i % 3 == 0 ? "\n" : i % 7 == 0 ? "\n\n  " : " ";
  }
  return text;
}

class Tokenizing : public ::testing::Test {
 protected:
  // The tokens of documents, with each document tokenized as a whole.
  static Ids expected(const DocumentEncoder& encoder, const std::vector<std::string>& documents) {
    Ids ids;
    Tokenizer::Memory memory(*encoder.tokenizer);
    for (const std::string& document : documents) {
      if (document.empty()) continue;
      encoder.tokenizer->encode(document, memory, ids);
      if (encoder.end_of_document) ids.push_back(*encoder.end_of_document);
    }
    return ids;
  }
  std::unique_ptr<TokenSource> open(const std::string& path, const DocumentEncoder& encoder,
                                    bool writes = true, int threads = 3) {
    TextAccess access{
        .encoder = [&] { return encoder; }, .cache = dir_ / ".cache", .writes = writes};
    access.tokenizing.threads = threads;
    return open_token_source(path, 1 << 20, access);
  }
  static Ids all(const TokenSource& source) {
    Ids ids(static_cast<std::size_t>(source.size()));
    source.read(0, ids);
    return ids;
  }
  std::string refusal(const std::string& name, const std::string& contents,
                      const DocumentEncoder& encoder = golden_encoder()) {
    spit(dir_ / name, contents);
    std::string message;
    try {
      open(dir_ / name, encoder);
    } catch (const RequestError& error) {
      message = error.what();
    }
    // Neither half-written files are left, nor files that would pass for complete ones.
    EXPECT_EQ(open(dir_ / name, encoder, false), nullptr) << name;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / ".cache")) {
      const std::string left = entry.path().filename().string();
      EXPECT_THAT(left, ::testing::AnyOf("lock", "files", "CACHEDIR.TAG")) << name;
    }
    return message;
  }

  TempDir dir_;
};

TEST_F(Tokenizing, ATextOfManyBlocksIsTokenizedAsInOneBlock) {
  const std::string text = long_text(2'000'000);
  spit(dir_ / "a.txt", text);
  for (const char* kind :
       {"byte_level", "metaspace", "unigram", "sentencepiece_bpe", "word_piece"}) {
    const DocumentEncoder encoder = golden_encoder(kind);
    EXPECT_EQ(all(*open(dir_ / "a.txt", encoder)), expected(encoder, {text})) << kind;
  }
}

TEST_F(Tokenizing, EveryKindOfFileGivesTheSameDocuments) {
  const std::vector<std::string> documents = {"The first, é\n", "second \"quoted\"", "",
                                              "third 日本"};
  const std::string lines =
      "{\"text\": \"The first, \\u00e9\\n\", \"meta\": {\"text\": \"inner\"}}\n\n"
      "{\"id\": [1, {\"text\": 2}], \"text\": \"second \\\"quoted\\\"\"}\r\n{\"text\": \"\"}\n"
      "{\"text\": \"third 日本\"}";
  const DocumentEncoder encoder = golden_encoder();
  spit(dir_ / "a.jsonl", lines);
  spit(dir_ / "a.jsonl.gz", gzipped(lines));
  spit(dir_ / "b.jsonl.gz", gzipped(lines.substr(0, 30)) + gzipped(lines.substr(30)));  // members
  spit(dir_ / "a.jsonl.zst", zstandard(lines));
  for (const char* name : {"a.jsonl", "a.jsonl.gz", "b.jsonl.gz", "a.jsonl.zst"}) {
    EXPECT_EQ(all(*open(dir_ / name, encoder)), expected(encoder, documents)) << name;
  }
  spit(dir_ / "t.txt.gz", gzipped("The first, é\n"));
  spit(dir_ / "t.zst", zstandard("The first, é\n"));
  for (const char* name : {"t.txt.gz", "t.zst"}) {
    EXPECT_EQ(all(*open(dir_ / name, encoder)), expected(encoder, {documents[0]})) << name;
  }
}

// tar and large public dumps leave files like these.
TEST_F(Tokenizing, CompressedFilesAreReadAsTheirToolsReadThem) {
  const DocumentEncoder encoder = golden_encoder();
  const auto gives = [&](const std::string& name, const std::string& contents) {
    spit(dir_ / name, contents);
    return all(*open(dir_ / name, encoder));
  };
  const Ids text = expected(encoder, {"one and two"});
  EXPECT_EQ(gives("padded.txt.gz", gzipped("one and two") + std::string(512, '\0')), text);
  EXPECT_EQ(gives("far.txt.gz", gzipped("one and two") + std::string(1 << 19, '\0')), text);
  EXPECT_EQ(gives("between.txt.gz", gzipped("one ") + std::string(100, '\0') + gzipped("and two")),
            text);
  EXPECT_EQ(gives("frames.txt.zst", zstandard("one ") + zstandard("and two")), text);
  const std::string skippable("\x52\x2a\x4d\x18\x03\0\0\0abc", 11);
  EXPECT_EQ(gives("skip.txt.zst", skippable + zstandard("one and two") + skippable), text);
  for (const int window : {20, 28, 31}) {  // zstd --long=31
    EXPECT_EQ(gives(fmt::format("w{}.txt.zst", window), zstandard_frame(window, "one and two")),
              text);
  }
}

TEST_F(Tokenizing, OtherMembersMayHoldAllValuesThatPythonWrites) {
  const DocumentEncoder encoder = golden_encoder();
  for (const char* other :
       {"1e999", "-1E+999", "NaN", "Infinity", "-Infinity", "123456789012345678901234567890",
        "\"\\ud83d\"", "[[], {}, {\"a\": [1, -0.5e-3, true, null]}, \"\\\"]\"]"}) {
    spit(dir_ / "a.jsonl",
         fmt::format("\xef\xbb\xbf{{\"o\": {0}, \"text\": \"one\", \"z\":{0}}}\r\n", other));
    EXPECT_EQ(all(*open(dir_ / "a.jsonl", encoder)), expected(encoder, {"one"})) << other;
  }
}

TEST_F(Tokenizing, InvalidJsonIsRefusedInAnyMember) {
  for (const char* wrong : {"01", "1.", ".5", "1e", "+1", "nan", "tru", "'a'", "{a: 1}", "[1,]",
                            "{\"a\": 1,}", "\"\\x\"", "\"\\u12g4\"", "\"\t\"", "1 2", ""}) {
    EXPECT_THAT(refusal("w.jsonl", fmt::format("{{\"o\": {}, \"text\": \"one\"}}", wrong)),
                HasSubstr("w.jsonl:1: isn't JSON: byte "))
        << wrong;
  }
}

TEST_F(Tokenizing, HalvesOfSurrogatePairsAreReplacedIfAsked) {
  DocumentEncoder encoder = golden_encoder();
  encoder.replace_errors = true;
  spit(dir_ / "a.jsonl",
       "{\"text\": \"cut \\ud83d here, \\ude00\\ud83d\\ud83d\\ude00 \\ud83d\\n\\u00e9\"}\n");
  EXPECT_EQ(all(*open(dir_ / "a.jsonl", encoder)),
            expected(encoder, {"cut \ufffd here, \ufffd\ufffd\U0001f600 \ufffd\n\u00e9"}));
}

TEST_F(Tokenizing, AFolderIsItsTextsInTheOrderOfTheirNames) {
  std::filesystem::create_directories(dir_ / "d/inner");
  spit(dir_ / "d/b.txt", "of b");
  spit(dir_ / "d/a.jsonl", "{\"text\": \"of a\"}");
  spit(dir_ / "d/inner/c.txt.gz", gzipped("of c"));
  spit(dir_ / "d/picture.png", "no text");
  spit(dir_ / "d/.hidden.txt", "hidden");
  const DocumentEncoder encoder = golden_encoder();
  EXPECT_EQ(all(*open(dir_ / "d", encoder)), expected(encoder, {"of a", "of b", "of c"}));
  EXPECT_EQ(all(*open(dir_ / "d/*.txt", encoder)), expected(encoder, {"of b"}));
  EXPECT_EQ(all(*open(dir_ / "d/[ab].*", encoder)), expected(encoder, {"of a", "of b"}));
}

TEST_F(Tokenizing, PairsOfAFolderFollowEachOther) {
  std::filesystem::create_directories(dir_ / "d");
  for (const auto& [name, tokens] : {std::pair("one", Ids{1, 2, 3}), std::pair("two", Ids{4, 5})}) {
    IndexedWriter writer(dir_ / ("d/" + std::string(name)), 100);
    writer.append(tokens);
    writer.end_document();
    writer.commit();
  }
  const auto source = open(dir_ / "d", golden_encoder());
  EXPECT_THAT(all(*source), ElementsAre(1, 2, 3, 4, 5));
  Ids middle(3);
  source->read(1, middle);
  EXPECT_THAT(middle, ElementsAre(2, 3, 4));
  spit(dir_ / "d/t.txt", "text");
  EXPECT_THROW(open(dir_ / "d", golden_encoder()), RequestError);
}

TEST_F(Tokenizing, HalvesOfPairsThatMatchAPatternAreThePairs) {
  spit(dir_ / "a.jsonl", "{\"text\": \"one\"}");
  const DocumentEncoder encoder = golden_encoder();
  IndexedWriter writer(dir_ / "p", 100);
  writer.append(Ids{1, 2, 3});
  writer.end_document();
  writer.commit();
  for (const char* pattern : {"p*", "*.bin", "*.idx"}) {
    EXPECT_EQ(all(*open(dir_ / pattern, encoder)), (Ids{1, 2, 3})) << pattern;
  }
}

TEST_F(Tokenizing, AnArchiveIsNoText) {
  for (const char* name : {"a.tar", "a.tar.gz", "a.zip", "a.parquet.gz", "a.txt.xz"}) {
    spit(dir_ / name, "some bytes");
    EXPECT_THROW(open(dir_ / name, golden_encoder()), RequestError) << name;
    EXPECT_THROW(open(dir_ / (std::string(name) + "*"), golden_encoder()), RequestError) << name;
  }
}

TEST_F(Tokenizing, JsonHasALineForEachDocument) {
  const DocumentEncoder encoder = golden_encoder();
  for (const char* name : {"a.json", "a.ndjson", "a.jsonl"}) {
    spit(dir_ / name, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    EXPECT_EQ(all(*open(dir_ / name, encoder)), expected(encoder, {"one", "two"})) << name;
  }
  spit(dir_ / "b.json", "[{\"text\": \"one\"}]");
  EXPECT_THROW(open(dir_ / "b.json", encoder), RequestError);
}

// Lines and rows are split in the same way as texts.
TEST_F(Tokenizing, ALongLineIsTokenizedAsInOneBlock) {
  const std::string text = long_text(3'000'000);
  spit(dir_ / "a.jsonl", json_text(nlohmann::json{{"text", text}}));
  for (const char* name :
       {"byte_level", "metaspace", "sentencepiece_bpe", "unigram", "word_piece"}) {
    const DocumentEncoder encoder = golden_encoder(name);
    EXPECT_EQ(all(*open(dir_ / "a.jsonl", encoder)), expected(encoder, {text})) << name;
  }
}

TEST_F(Tokenizing, BytesEndDocumentsWithALine) {
  spit(dir_ / "a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\\n\"}\n");
  EXPECT_THAT(all(*open(dir_ / "a.jsonl", {.end_of_document = '\n'})),
              ElementsAre('a', '\n', 'b', '\n'));
  EXPECT_THAT(all(*open(dir_ / "a.jsonl", {})), ElementsAre('a', 'b', '\n'));
}

TEST_F(Tokenizing, InvalidUtf8IsReplacedIfAsked) {
  DocumentEncoder encoder = golden_encoder();
  encoder.replace_errors = true;
  spit(dir_ / "a.txt", "a\xff\xe2\x82z\n");
  EXPECT_EQ(all(*open(dir_ / "a.txt", encoder)), expected(encoder, {"a\ufffd\ufffdz\n"}));
  spit(dir_ / "a.jsonl", "{\"text\": \"a\xffz\"}");
  EXPECT_EQ(all(*open(dir_ / "a.jsonl", encoder)), expected(encoder, {"a\ufffdz"}));
}

TEST_F(Tokenizing, UnreadableTextIsRefusedWithFileAndLine) {
  EXPECT_THAT(
      refusal("u.txt", "one\ntwo \xff\n"),
      HasSubstr(
          "u.txt:2: byte 5 of it, 0xff, isn't UTF-8; errors \"replace\" (data.tokenizer.errors"));
  EXPECT_THAT(refusal("late.txt", long_text(700'000) + "\nlast\xc3"),
              HasSubstr("0xc3, isn't UTF-8"));
  EXPECT_THAT(refusal("j.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n"),
              HasSubstr("j.jsonl:2: isn't JSON: "));
  EXPECT_THAT(refusal("k.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n"),
              HasSubstr("k.jsonl:2: has no \"text\"; data.json_key says which key has the text"));
  EXPECT_THAT(refusal("n.jsonl", "{\"text\": 3}"), HasSubstr("n.jsonl:1: \"text\" isn't a string"));
  EXPECT_THAT(refusal("l.jsonl", "[\"text\"]"), HasSubstr("l.jsonl:1: isn't a JSON object"));
  EXPECT_THAT(refusal("m.jsonl", "[\n {\"text\": \"a\"}\n]\n"),
              HasSubstr("m.jsonl:1: isn't a JSON object, as each line has to be, but begins an "
                        "array; if it is an array of objects, jq -c '.[]' "));
  EXPECT_THAT(refusal("o.json", "{\n \"text\": \"a\"\n}\n"),
              HasSubstr("o.json:1: isn't JSON: it ends within an object; if objects span several "
                        "lines, jq -c . "));
  EXPECT_THAT(
      refusal("h.jsonl", "{\"text\": \"a\\ud83d b\"}"),
      HasSubstr("h.jsonl:1: isn't JSON: byte 12: \\ud83d is an unpaired surrogate and so no "
                "character; errors \"replace\""));
  EXPECT_THAT(refusal("b.jsonl", "{\"text\": \"\xff\"}"), HasSubstr("b.jsonl:1: isn't JSON"));
  EXPECT_THAT(refusal("z.jsonl", std::string("{\"text\": \"a\"}\n\0\n", 16)),
              HasSubstr("z.jsonl:2: isn't JSON"));
  std::string deep = "{";
  for (int i = 0; i < 64; ++i) deep += "\"a\":{";
  EXPECT_THAT(refusal("d.jsonl", deep), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal("e.txt", ""), HasSubstr("e.txt: holds no text, so no token"));
  EXPECT_THAT(refusal("e.jsonl", "\n\n"), HasSubstr("holds no text"));
  const std::string good = gzipped(long_text(100'000));
  EXPECT_THAT(refusal("c.txt.gz", good.substr(0, good.size() / 2)),
              HasSubstr("c.txt.gz: the gzip file is truncated: it ends within its data"));
  EXPECT_THAT(refusal("s.txt.gz", good.substr(0, good.size() - 4)), HasSubstr("is truncated"));
  std::string damaged = good;
  damaged[good.size() - 6] ^= 1;  // its checksum
  EXPECT_THAT(refusal("d.txt.gz", damaged), HasSubstr("damaged: incorrect data check"));
  EXPECT_THAT(refusal("p.txt.gz", "plain"), HasSubstr("is no gzip file, or damaged"));
  const std::string zst = zstandard(long_text(100'000));
  EXPECT_THAT(refusal("c.txt.zst", zst.substr(0, zst.size() / 2)),
              HasSubstr("c.txt.zst: the zstd file is truncated: it ends within its data"));
  EXPECT_THAT(refusal("p.txt.zst", "plain"), HasSubstr("is no zstd file, or damaged"));
  EXPECT_THAT(refusal("b.txt.gz", good + "more"),
              HasSubstr(fmt::format("b.txt.gz: after its last member, at byte {}, come bytes that "
                                    "are no gzip member; remove them",
                                    good.size())));
  EXPECT_THAT(refusal("f.txt.gz", good + std::string(1000, '\0') + "\x1f!"),
              HasSubstr("after its last member"));
  EXPECT_THAT(refusal("a.txt.gz", good + good.substr(0, 30)), HasSubstr("is truncated"));
  EXPECT_THAT(refusal("b.txt.zst", zst + "more bytes"),
              HasSubstr("b.txt.zst: after its last frame come bytes that are no zstd frame"));
  // The frame declares a window of 4 GiB.
  EXPECT_THAT(refusal("w.txt.zst", zstandard_frame(32, "text")),
              HasSubstr("w.txt.zst: needs a window of more than 2 GiB"));
  EXPECT_THAT(refusal("e.txt.gz", ""), HasSubstr("is truncated"));
  EXPECT_THAT(refusal("e.txt.zst", ""), HasSubstr("is truncated"));
}

// The text has 70 MiB without a split point, in 100 kB. It is refused before all of it is in
// memory.
TEST_F(Tokenizing, ADecompressionBombIsRefused) {
  EXPECT_THAT(refusal("bomb.txt.gz", gzipped(std::string(70 << 20, 'a'))),
              HasSubstr("bomb.txt.gz:1: the tokenizer can't tell where to cut the text in 64 MiB"));
  EXPECT_THAT(refusal("bomb.jsonl.gz", gzipped("{}\n" + std::string(70 << 20, ' '))),
              ::testing::AnyOf(HasSubstr("bomb.jsonl.gz:2: the line is longer than 64 MiB"),
                               HasSubstr("bomb.jsonl.gz:1: has no \"text\"")));
}

TEST_F(Tokenizing, TokensAreMadeOnceAndFoundByContents) {
  const DocumentEncoder encoder = golden_encoder();
  spit(dir_ / "a.txt", "some text");
  EXPECT_EQ(open(dir_ / "a.txt", encoder, false), nullptr);
  const auto made = open(dir_ / "a.txt", encoder);
  ASSERT_NE(made, nullptr);
  std::filesystem::copy_file(dir_ / "a.txt", dir_ / "copy.txt");
  for (const char* name : {"a.txt", "copy.txt"}) {
    const auto found = open(dir_ / name, encoder, false);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->contents(), made->contents());
    EXPECT_EQ(found->path(), dir_ / name);
  }
  spit(dir_ / "a.txt", "some texts");
  EXPECT_EQ(open(dir_ / "a.txt", encoder, false), nullptr);
  // Three changes need a new cache entry: another tokenizer, another end of text, another treatment
  // of errors.
  EXPECT_EQ(open(dir_ / "copy.txt", golden_encoder("unigram"), false), nullptr);
  DocumentEncoder other = encoder;
  other.end_of_document.reset();
  EXPECT_EQ(open(dir_ / "copy.txt", other, false), nullptr);
  other = encoder;
  other.replace_errors = true;
  EXPECT_EQ(open(dir_ / "copy.txt", other, false), nullptr);
}

TEST_F(Tokenizing, ADamagedCacheIsMadeAnew) {
  const DocumentEncoder encoder = golden_encoder();
  const std::string text = long_text(100'000);
  spit(dir_ / "a.txt", text);
  open(dir_ / "a.txt", encoder);
  std::string prefix;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / ".cache")) {
    if (entry.path().extension() == ".bin") prefix = entry.path().string();
  }
  prefix.resize(prefix.size() - 4);
  const auto damage = [&](const std::string& ending, const std::function<void(std::string&)>& how) {
    std::string bytes = slurp(prefix + ending);
    how(bytes);
    spit(prefix + ending, bytes);
    EXPECT_EQ(open(dir_ / "a.txt", encoder, false), nullptr) << ending;
    EXPECT_EQ(all(*open(dir_ / "a.txt", encoder)), expected(encoder, {text})) << ending;
  };
  damage(".bin", [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  damage(".bin", [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  damage(".idx", [](std::string& bytes) { bytes.pop_back(); });
  damage(".json", [](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  damage(".json", [](std::string& bytes) { bytes = "{}"; });
  std::filesystem::remove(prefix + ".json");
  const std::string left = prefix + ".bin.tmp-1-0";  // left by a process that was killed
  spit(left, "half");
  EXPECT_EQ(open(dir_ / "a.txt", encoder, false), nullptr);
  std::filesystem::remove(prefix + ".bin");
  EXPECT_EQ(all(*open(dir_ / "a.txt", encoder)), expected(encoder, {text}));
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(Tokenizing, BordersOfDocumentsAreKept) {
  spit(dir_ / "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two three\"}\n");
  const DocumentEncoder encoder = golden_encoder();
  const TokenCache cache(dir_ / ".cache", true);
  const CachedTokens tokens = cache.make("a", {source_file(dir_ / "a.jsonl")}, encoder, {});
  EXPECT_EQ(tokens.documents, 2);
  const std::string idx = slurp(tokens.prefix + ".idx");
  // Two sequences have three borders: 0, 1, 2 in the last 24 bytes.
  EXPECT_EQ(idx.substr(idx.size() - 24),
            std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24));
}

// Bits per byte divide by these bytes.
TEST_F(Tokenizing, BytesOfTheTextAreKnownBeforeTheEndOfEachDocument) {
  const DocumentEncoder encoder = golden_encoder();
  spit(dir_ / "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"\"}\n{\"text\": \"tw\\u00e9\"}\n");
  for (const bool writes : {true, false}) {
    const auto source = open(dir_ / "a.jsonl", encoder, writes);
    ASSERT_NE(source->text_marks(), nullptr);
    const auto& list = source->text_marks()->list();
    ASSERT_GE(list.size(), 3u);
    EXPECT_EQ(list.front(), (TextMark{0, 0}));
    EXPECT_EQ(list[1], (TextMark{std::ssize(expected(encoder, {"one"})), 3}));
    EXPECT_EQ(list.back(), (TextMark{source->size(), 7}));
  }
  // A byte that isn't UTF-8 counts as its replacement.
  DocumentEncoder replacing = encoder;
  replacing.replace_errors = true;
  spit(dir_ / "b.txt", "a\xffz");
  EXPECT_EQ(open(dir_ / "b.txt", replacing)->text_marks()->list().back().bytes, 5);
}

TEST_F(Tokenizing, MarksOfManyDocumentsAreThinnedOut) {
  TextMarks marks;
  for (std::int64_t i = 1; i <= 100'000; ++i) marks.add({i, 3 * i});
  EXPECT_LT(marks.list().size(), 9'000u);
  EXPECT_GT(marks.list().size(), 2'000u);
  EXPECT_EQ(marks.list().back(), (TextMark{100'000, 300'000}));
  const auto [before, after] = marks.around(54'321);
  EXPECT_LE(before.tokens, 54'321);
  EXPECT_GE(after.tokens, 54'321);
  EXPECT_LT(after.tokens - before.tokens, 100);
  EXPECT_EQ(marks.around(200'000).first, marks.list().back());
  // A damaged list of marks, or a file from before there were any, gives only the end of the text.
  const TextMark end{10, 20};
  EXPECT_THAT(TextMarks({}, end).list(), ElementsAre(TextMark{}, end));
  EXPECT_THAT(TextMarks({{}, {5, 30}, {10, 20}}, end).list(), ElementsAre(TextMark{}, end));
  EXPECT_THAT(TextMarks({{}, {5, 6}, {10, 20}}, end).list(),
              ElementsAre(TextMark{}, TextMark{5, 6}, end));
}

// Later starts then read neither the text nor all of its tokens.
TEST_F(Tokenizing, HashesOfFilesAreStored) {
  const DocumentEncoder encoder = golden_encoder();
  spit(dir_ / "a.txt", "some text");
  const TextAccess access{
      .encoder = [&] { return encoder; }, .cache = dir_ / ".cache", .remembers = true};
  EXPECT_EQ(open_token_source(dir_ / "a.txt", 1 << 20, access), nullptr);
  EXPECT_FALSE(std::filesystem::exists(dir_ / ".cache")) << "made for nothing";
  open(dir_ / "a.txt", encoder);
  // A file that changed a moment ago isn't remembered.
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  EXPECT_NE(open_token_source(dir_ / "a.txt", 1 << 20, access), nullptr);
  const auto files = std::filesystem::directory_iterator(dir_ / ".cache/files");
  EXPECT_EQ(std::distance(begin(files), end(files)), 3) << "the text and the pair";
}

// Several threads open the text at once: one tokenizes, the others wait, and all get the same
// tokens.
TEST_F(Tokenizing, OneThreadTokenizesForAll) {
  const std::string text = long_text(500'000);
  spit(dir_ / "a.txt", text);
  const DocumentEncoder encoder = golden_encoder();
  std::vector<Ids> results(3);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] { result = all(*open(dir_ / "a.txt", encoder, true, 1)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected(encoder, {text}));
}

TEST_F(Tokenizing, AnErrorLeavesNothing) {
  spit(dir_ / "a.txt", long_text(3'000'000) + "\xff");
  const DocumentEncoder encoder = golden_encoder();
  EXPECT_THROW(open(dir_ / "a.txt", encoder), RequestError);
  EXPECT_EQ(open(dir_ / "a.txt", encoder, false), nullptr);
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / ".cache")) {
    EXPECT_THAT(entry.path().filename().string(),
                ::testing::AnyOf("lock", "files", "CACHEDIR.TAG"));
  }
}

TEST_F(Tokenizing, AVocabularyLargerThanTheModelsIsRefused) {
  spit(dir_ / "a.txt", "text");
  const DocumentEncoder encoder = golden_encoder();
  TextAccess access{.encoder = [&] { return encoder; }, .cache = dir_ / ".cache", .writes = true};
  try {
    open_token_source(dir_ / "a.txt", 300, access);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ids, model.vocab_size is 300; use 50"));
  }
}

}  // namespace
}  // namespace trident
