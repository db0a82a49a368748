// Tests files that are written in parts, and past the page cache where they are large.
#include "base/files/file_system.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/files/file.h"
#include "support/temp_dir.h"

namespace trident::testing {
namespace {

using Parts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // begin, end

std::string random_text(std::size_t bytes, std::mt19937& random) {
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// Splits [0, bytes) into parts of up to `largest` bytes. Most parts end at unaligned offsets.
Parts cut(std::uint64_t bytes, std::uint64_t largest, std::mt19937& random) {
  Parts parts;
  for (std::uint64_t begin = 0; begin < bytes;) {
    std::uint64_t count = 1 + random() % largest;
    if (random() % 4 == 0) count = (count + 4095) / 4096 * 4096;
    const std::uint64_t end = std::min(bytes, begin + count);
    parts.emplace_back(begin, end);
    begin = end;
  }
  return parts;
}

// Several ranks write contiguous ranges of one file, each rank in its own order.
void write_by_parts(const std::string& path, const std::string& text, std::uint64_t largest,
                    std::mt19937& random) {
  constexpr int writers = 3;
  std::vector<Parts> of(writers);
  int writer = 0;
  for (const auto& part : cut(text.size(), largest, random)) {
    if (random() % 3 == 0) writer = static_cast<int>(random() % writers);  // else the writer stays
    of[static_cast<std::size_t>(writer)].push_back(part);
  }
  auto first = real_files().create(path, text.size());
  std::vector<std::thread> threads;
  for (int i = 0; i < writers; ++i) {
    if (i == 1) std::ranges::reverse(of[1]);
    if (i == 2) std::ranges::shuffle(of[2], random);
    threads.emplace_back(
        [&, i,
         own = std::shared_ptr<OutputFile>(i == 0 ? std::move(first) : real_files().open(path))] {
          for (const auto& [begin, end] : of[static_cast<std::size_t>(i)]) {
            own->write_at(begin, as_bytes_of(std::string_view(text).substr(begin, end - begin)));
          }
          own->finish();
        });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FileSystem, PartsOfAnySizeAtAnyPlaceMakeTheFile) {
  std::mt19937 random(7);
  const TempDir disk;
  // The second folder is in memory: a file system that can't write past the page cache.
  const std::string memory = "/dev/shm/trident-file-system-test-" + disk.path().substr(5 + 8);
  std::filesystem::create_directory(memory);
  for (const std::string& folder : {disk.path(), memory}) {
    for (const auto& [bytes, largest] : {std::pair<std::uint64_t, std::uint64_t>{3, 2},
                                         {5 << 20, 100'000},
                                         {(30 << 20) + 17, 1},
                                         {(30 << 20) + 17, 20 << 20},
                                         {20 << 20, 9 << 20},
                                         {(4 << 20) + 4096, 5000}}) {
      const std::string text = random_text(largest == 1 ? 5'000'000 : bytes, random);
      const std::string path = folder + "/file";
      write_by_parts(path, text, largest == 1 ? 300 : largest, random);
      EXPECT_TRUE(read_file(path) == text) << folder << " " << bytes << " " << largest;
      std::filesystem::remove(path);
    }
  }
  std::filesystem::remove_all(memory);
}

TEST(FileSystem, AnExistingFileIsNotCreatedAgain) {
  const TempDir dir;
  real_files().write(dir / "a", "text");
  EXPECT_THROW(real_files().create(dir / "a", 4), Error);
  real_files().replace(dir / "a", "other");
  EXPECT_EQ(read_file(dir / "a"), "other");
}

}  // namespace
}  // namespace trident::testing
