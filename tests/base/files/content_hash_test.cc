#include "base/files/content_hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_dir.h"

namespace trident {
namespace {

std::uint64_t hash_of(const std::string& text, std::uint64_t seed = 0) {
  return content_hash(std::as_bytes(std::span(text)), seed);
}

TEST(ContentHash, EveryByteItsPlaceAndTheLengthCount) {
  std::set<std::uint64_t> seen{hash_of("")};
  const std::string text(100, 'a');
  EXPECT_TRUE(seen.insert(hash_of(text)).second);
  EXPECT_TRUE(seen.insert(hash_of(text, 1)).second);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    EXPECT_TRUE(seen.insert(hash_of(other)).second) << i;
    EXPECT_TRUE(seen.insert(hash_of(text.substr(0, i + 1) + std::string(i, '\0'))).second) << i;
  }
  std::string swapped = text;
  swapped[0] = 'b';
  std::string elsewhere = text;
  elsewhere[32] = 'b';  // the same lane, one step later
  EXPECT_NE(hash_of(swapped), hash_of(elsewhere));
  EXPECT_EQ(hash_of(text), hash_of(std::string(100, 'a')));
}

TEST(ContentHash, OfALargeFileItReadsBothEndsAndBlocksBetween) {
  const testing::TempDir dir;
  const std::string path = dir / "large";
  constexpr std::size_t mebi = std::size_t{1} << 20, size = 40 * mebi + 12345;
  const auto write = [&](std::size_t changed) {
    std::vector<char> bytes(size);
    if (changed < size) bytes[changed] = 1;
    std::ofstream(path).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  };
  write(size);
  const std::uint64_t unchanged = content_hash_of_file(path),
                      part = content_hash_of_file(path, 4 * mebi);
  for (const std::size_t changed : {std::size_t{0}, size - 1, size / 2}) {
    write(changed);
    EXPECT_NE(content_hash_of_file(path), unchanged) << changed;
    EXPECT_EQ(content_hash_of_file(path, 4 * mebi) != part, changed != size / 2) << changed;
  }
  EXPECT_THROW(content_hash_of_file(dir / "missing"), RequestError);
}

}  // namespace
}  // namespace trident
