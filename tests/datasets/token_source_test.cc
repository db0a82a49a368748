#include "datasets/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/files/bytes.h"
#include "datasets/indexed_source.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spit;
using testing::TempDir;

template <class T>
void append(std::string& out, T value) {
  std::byte bytes[sizeof(T)];
  store_little_endian(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), sizeof(T));
}

// The contents of the .idx; each test corrupts one field.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t dtype = 8;
  std::vector<std::int32_t> lengths = {3, 0, 2};
  std::vector<std::int64_t> pointers = {0, 6, 6};
  std::vector<std::int64_t> documents = {0, 2, 3};

  std::string bytes() const {
    std::string out = magic;
    append(out, version);
    append(out, dtype);
    append(out, std::uint64_t{lengths.size()});
    append(out, std::uint64_t{documents.size()});
    for (const auto n : lengths) append(out, n);
    for (const auto n : pointers) append(out, n);
    for (const auto n : documents) append(out, n);
    return out;
  }
};

template <class T>
std::string tokens_as(std::initializer_list<std::int64_t> tokens) {
  std::string out;
  for (const auto token : tokens) append(out, static_cast<T>(token));
  return out;
}

std::vector<std::int32_t> read(const TokenSource& source, std::int64_t begin, std::size_t count) {
  std::vector<std::int32_t> out(count);
  source.read(begin, out);
  return out;
}

class TokenSources : public ::testing::Test {
 protected:
  void write_pair(const Index& index, const std::string& bin) {
    spit(dir_ / "c.idx", index.bytes());
    spit(dir_ / "c.bin", bin);
  }
  std::string rejects(const Index& index, const std::string& bin = std::string(10, '\0')) {
    write_pair(index, bin);
    return message_of<RequestError>([&] { open_token_source(dir_ / "c", 100); });
  }
  TempDir dir_;
};

// The second document is empty, the third has two sequences, and the last one is empty.
TEST_F(TokenSources, APairKnowsItsDocuments) {
  Index index;
  index.lengths = {3, 2, 1, 4};
  index.pointers = {0, 6, 10, 12};
  index.documents = {0, 1, 1, 3, 4, 4};
  write_pair(index, std::string(20, '\0'));
  const auto source = open_token_source(dir_ / "c", 100);
  EXPECT_TRUE(source->has_documents());
  EXPECT_THAT(source->document_edges(0, 10), ElementsAre(3, 6, 10));
  EXPECT_THAT(source->document_edges(3, 9), ElementsAre(6));
  EXPECT_THAT(source->document_edges(2, 3), ElementsAre(3));
  EXPECT_THAT(source->document_edges(6, 9), ElementsAre());
  EXPECT_THAT(source->document_edges(0, 0), ElementsAre());

  // Of several pairs each begins a document.
  fs::create_directory(dir_ / "all");
  for (const char* name : {"a", "b"}) {
    spit(dir_ / (std::string("all/") + name + ".idx"), index.bytes());
    spit(dir_ / (std::string("all/") + name + ".bin"), std::string(20, '\0'));
  }
  const auto all = open_token_source(dir_ / "all", 100);
  EXPECT_TRUE(all->has_documents());
  EXPECT_THAT(all->document_edges(0, 20), ElementsAre(3, 6, 10, 13, 16, 20));
  EXPECT_THAT(all->document_edges(9, 13), ElementsAre(10, 13));
  EXPECT_THAT(all->document_edges(10, 12), ElementsAre());

  Index one;
  one.documents = {0, 3};
  write_pair(one, std::string(10, '\0'));
  EXPECT_FALSE(open_token_source(dir_ / "c", 100)->has_documents());
}

TEST_F(TokenSources, TextIsOneTokenAByte) {
  spit(dir_ / "t.txt", "Az\n\xff");
  const auto source = open_token_source(dir_ / "t.txt", 256);
  EXPECT_EQ(source->size(), 4);
  EXPECT_THAT(read(*source, 0, 4), ElementsAre(65, 122, 10, 255));
  EXPECT_THAT(read(*source, 3, 1), ElementsAre(255));
  EXPECT_THROW(read(*source, 3, 2), Error);
  EXPECT_THROW(read(*source, -1, 2), Error);
}

// Another process truncates the file while it is read. Its pages are gone, and access through a
// memory map would raise SIGBUS.
TEST_F(TokenSources, AFileThatIsTruncatedMeanwhileIsAnErrorWithItsName) {
  spit(dir_ / "t.txt", std::string(1 << 20, 'x'));
  write_pair({.lengths = {1 << 19}, .pointers = {0}, .documents = {0, 1}},
             std::string(1 << 20, '\1'));
  for (const auto& [path, cut] : {std::pair("t.txt", "t.txt"), std::pair("c", "c.bin")}) {
    const auto source = open_token_source(dir_ / path, 300);
    EXPECT_EQ(read(*source, 300'000, 2).size(), 2U);
    std::filesystem::resize_file(dir_ / cut, 1000);
    EXPECT_THAT(message_of<RequestError>([&] { read(*source, 300'000, 2); }),
                AllOf(HasSubstr(std::string(cut) + ": truncated"),
                      HasSubstr("it was truncated after it was opened")));
    EXPECT_EQ(read(*source, 400, 2).size(), 2U);
  }
}

TEST_F(TokenSources, EveryIntegerTypeOfAPairReadsBack) {
  const auto check = [&](int code, const std::string& bin, std::size_t width) {
    Index index;
    index.dtype = static_cast<std::uint8_t>(code);
    index.pointers = {0, static_cast<std::int64_t>(3 * width),
                      static_cast<std::int64_t>(3 * width)};
    write_pair(index, bin);
    const auto source = open_token_source(dir_ / "c", 70000);
    ASSERT_EQ(source->size(), 5) << code;
    EXPECT_THAT(read(*source, 1, 4), ElementsAre(2, 3, 100, 5)) << code;
  };
  std::initializer_list<std::int64_t> tokens = {1, 2, 3, 100, 5};
  check(1, tokens_as<std::uint8_t>(tokens), 1);
  check(2, tokens_as<std::int8_t>(tokens), 1);
  check(3, tokens_as<std::int16_t>(tokens), 2);
  check(4, tokens_as<std::int32_t>(tokens), 4);
  check(5, tokens_as<std::int64_t>(tokens), 8);
  check(8, tokens_as<std::uint16_t>(tokens), 2);

  Index index;
  write_pair(index, tokens_as<std::uint16_t>({1, 2, 65535, 4, 5}));
  const IndexedSource pair(dir_ / "c", 70000);
  EXPECT_EQ(read(pair, 2, 1)[0], 65535);
}

TEST_F(TokenSources, ATokenBeyondTheVocabularyNamesFilePositionAndToken) {
  spit(dir_ / "t.txt", "abc~");
  EXPECT_THAT(message_of<RequestError>([&] { open_token_source(dir_ / "t.txt", 255); }),
              HasSubstr("t.txt: a text file has 256 token ids, its bytes, but model.vocab_size is "
                        "255; use 256"));
  write_pair(Index{}, tokens_as<std::uint16_t>({1, 2, 3, 100, 5}));
  const auto source = open_token_source(dir_ / "c", 100);
  EXPECT_THAT(read(*source, 0, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(message_of<RequestError>([&] { read(*source, 1, 4); }),
              HasSubstr("c.bin: token 100 at position 3 is outside [0, vocab_size 100)"));
  Index wide;
  wide.dtype = 5;
  wide.pointers = {0, 24, 24};
  for (const std::int64_t token :
       {std::int64_t{-1}, std::int64_t{1} << 32, std::numeric_limits<std::int64_t>::min()}) {
    write_pair(wide, tokens_as<std::int64_t>({1, token, 3, 4, 5}));
    EXPECT_THAT(message_of<RequestError>([&] { read(*open_token_source(dir_ / "c", 100), 0, 5); }),
                HasSubstr("token " + std::to_string(token) + " at position 1"));
  }
}

TEST_F(TokenSources, APathThatNamesNoDataIsRefusedWithTheReason) {
  const auto open = [&](const std::string& path) {
    return message_of<RequestError>([&] { open_token_source(path, 256); });
  };
  EXPECT_THAT(open(dir_ / "none"), HasSubstr("no such file"));
  EXPECT_THAT(open(dir_.path()), HasSubstr("holds no .txt, .jsonl, .parquet file"));
  EXPECT_THAT(open(""), HasSubstr("empty path"));
  spit(dir_ / "e.txt", "");
  EXPECT_THAT(open(dir_ / "e.txt"), HasSubstr("e.txt: the file is empty"));
  spit(dir_ / "t.txt", "text");

  write_pair(Index{}, tokens_as<std::uint16_t>({1, 2, 3, 4, 5}));
  EXPECT_EQ(open(dir_ / "c"), "");
  EXPECT_THAT(open(dir_ / "c.bin"), HasSubstr("by its common prefix, " + (dir_ / "c")));
  EXPECT_THAT(open(dir_ / "c.idx"), HasSubstr("by its common prefix, " + (dir_ / "c")));
  spit(dir_ / "c", "text too");
  EXPECT_THAT(open(dir_ / "c"), HasSubstr("rename one of the two"));
  std::filesystem::remove(dir_ / "c");
  std::filesystem::remove(dir_ / "c.idx");
  EXPECT_THAT(open(dir_ / "c"), HasSubstr("c.idx is missing"));
}

TEST_F(TokenSources, ADamagedIndexIsRefusedWithTheReason) {
  ASSERT_EQ(rejects(Index{}), "");
  const auto spoiled = [&](auto spoil) {
    Index index;
    spoil(index);
    return rejects(index);
  };
  EXPECT_THAT(spoiled([](Index& i) { i.magic[3] = 'X'; }), HasSubstr("c.idx: bad magic"));
  EXPECT_THAT(spoiled([](Index& i) { i.version = 2; }), HasSubstr("version 2, needs 1"));
  EXPECT_THAT(spoiled([](Index& i) { i.dtype = 7; }), HasSubstr("(f32) is no token type"));
  EXPECT_THAT(spoiled([](Index& i) { i.dtype = 0; }), HasSubstr("dtype code 0 is unknown"));
  EXPECT_THAT(spoiled([](Index& i) { i.lengths[1] = -1; }), HasSubstr("sequence 1 has length -1"));
  EXPECT_THAT(spoiled([](Index& i) { i.lengths[0] = 4; }),
              HasSubstr("sequence 1 points to byte 6, the lengths before it give 8"));
  EXPECT_THAT(spoiled([](Index& i) { i.pointers[0] = -2; }), HasSubstr("points to byte -2"));
  EXPECT_THAT(spoiled([](Index& i) { i.documents[0] = 1; }), HasSubstr("is 1, must be 0"));
  EXPECT_THAT(spoiled([](Index& i) {
                i.documents = {0, 2, 1, 3};
              }),
              HasSubstr("document index 2 is 1, must be at least 2"));
  EXPECT_THAT(spoiled([](Index& i) { i.documents.back() = 4; }),
              HasSubstr("the last document index is 4"));
  EXPECT_THAT(spoiled([](Index& i) { i.documents.clear(); }), HasSubstr("no document index"));
  EXPECT_THAT(rejects(Index{}, std::string(9, '\0')), HasSubstr("c.bin: 9 bytes"));
  EXPECT_THAT(rejects(Index{}, std::string(12, '\0')), HasSubstr("says 10"));
  Index none;
  none.lengths = {};
  none.pointers = {};
  none.documents = {0};
  EXPECT_THAT(rejects(none, ""), HasSubstr("holds no token"));

  const std::string good = Index{}.bytes();
  for (std::size_t size = 0; size < good.size(); ++size) {
    spit(dir_ / "c.bin", std::string(10, '\0'));
    spit(dir_ / "c.idx", good.substr(0, size));
    EXPECT_THAT(message_of<RequestError>([&] { open_token_source(dir_ / "c", 100); }),
                HasSubstr("truncated"))
        << size;
  }
  // The product of these counts with the element size overflows 64 bits.
  std::string hostile = good;
  for (const std::uint64_t count :
       {~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{0x1555555555555556}}) {
    store_little_endian(count, reinterpret_cast<std::byte*>(hostile.data() + 18));
    spit(dir_ / "c.idx", hostile);
    EXPECT_THAT(message_of<RequestError>([&] { open_token_source(dir_ / "c", 100); }),
                HasSubstr("truncated or damaged"));
  }
}

TEST_F(TokenSources, RandomDamageToAnIndexNeverCrashes) {
  const std::string good = Index{}.bytes();
  std::mt19937 random(5);
  int refused = 0;
  spit(dir_ / "c.bin", std::string(10, '\0'));
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << (random() % 8));
    spit(dir_ / "c.idx", bad);
    try {
      const auto source = open_token_source(dir_ / "c", 100);
      read(*source, 0, static_cast<std::size_t>(source->size()));
    } catch (const RequestError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace trident
