#include "checkpoint/verified_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/crc64.h"
#include "tests/support/temp_dir.h"

namespace trident {
namespace {

using ::testing::HasSubstr;

// Two files of several blocks with their sums; the last block of each file is short.
class VerifiedBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 random(7);
    for (const auto& [name, bytes] :
         {std::pair("a", 2 * checkpoint_block + 5), std::pair("b", checkpoint_block + 1)}) {
      std::string& text = texts_[name];
      for (std::uint64_t i = 0; i < bytes; i += 8) {
        const std::uint64_t word = random();
        text.append(reinterpret_cast<const char*>(&word), 8);
      }
      text.resize(bytes);
      SavedFile& file = manifest_.files[name];
      file.bytes = bytes;
      for (std::uint64_t at = 0; at < bytes; at += checkpoint_block) {
        file.blocks.push_back(crc64(std::string_view(text).substr(at, checkpoint_block)));
      }
      write(name);
    }
  }
  void write(const std::string& name) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << texts_[name];
  }

  testing::TempDir folder_;
  Manifest manifest_;
  std::map<std::string, std::string> texts_;
};

TEST_F(VerifiedBlocksTest, ManyThreadsGetTheFilesBytesAndTheErrorsOfDamagedBlocks) {
  texts_["a"][checkpoint_block + 100] ^= 1;
  write("a");
  const auto blocks = VerifiedBlocks::of(folder_.path(), manifest_);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0, damaged = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        const int n = (i + t / 2) % 5;  // two threads read the same block
        const std::string file = n < 3 ? "a" : "b";
        const auto index = static_cast<std::size_t>(n < 3 ? n : n - 3);
        try {
          const VerifiedBlocks::Block block = blocks->block(file, index);
          const std::string_view got(reinterpret_cast<const char*>(block->data()), block->size());
          if (got !=
              std::string_view(texts_[file]).substr(index * checkpoint_block, checkpoint_block))
            ++wrong;
        } catch (const RequestError& error) {
          if (n == 1 &&
              std::string(error.what()).find("/a: bytes 16777216 to 33554431 are damaged") !=
                  std::string::npos)
            ++damaged;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(damaged, 4 * 3);
}

TEST_F(VerifiedBlocksTest, ReadersOfOneProcessShareThemWhileTheyLast) {
  auto first = VerifiedBlocks::of(folder_.path(), manifest_);
  EXPECT_EQ(VerifiedBlocks::of(folder_.path(), manifest_), first);
  Manifest other = manifest_;
  other.root = "another";
  EXPECT_NE(VerifiedBlocks::of(folder_.path(), other), first);
  // A block that one reader has read isn't read again: the file may be gone.
  const VerifiedBlocks::Block block = first->block("b", 1);
  std::filesystem::remove(folder_.path() + "/b");
  EXPECT_EQ(first->block("b", 1), block);
  const std::weak_ptr<VerifiedBlocks> before = first;
  first.reset();
  EXPECT_TRUE(before.expired());
  EXPECT_EQ(block->size(), 1U);
}

TEST_F(VerifiedBlocksTest, ThereIsNoBlockBehindTheLastOne) {
  ByteBuffer bytes;
  EXPECT_THROW(VerifiedFile(folder_.path() + "/b", manifest_.files["b"]).read(2, bytes), Error);
  std::ofstream(folder_.path() + "/none").flush();
  const SavedFile none;
  const VerifiedFile empty(folder_.path() + "/none", none);
  empty.verify_all();
  EXPECT_THROW(empty.read(0, bytes), Error);
}

TEST_F(VerifiedBlocksTest, AFileOfAnotherSizeIsRefused) {
  texts_["b"] += "x";
  write("b");
  try {
    VerifiedBlocks::of(folder_.path(), manifest_)->block("b", 0);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("/b: has 16777218 bytes, trident/manifest.json says 16777217"));
  }
}

}  // namespace
}  // namespace trident
