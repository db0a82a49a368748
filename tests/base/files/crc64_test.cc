#include "base/files/crc64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

TEST(Crc64, IsThatOfXz) {
  EXPECT_EQ(crc64("123456789"), 0x995DC9BBDF1939FAu);  // the catalogue's check value of CRC-64/XZ
  EXPECT_EQ(crc64(""), 0u);
}

TEST(Crc64, OfBlocksIsTheSameForAnyDivisionOfTheBytesAmongRanks) {
  std::mt19937 random(3);
  for (const std::size_t size : {1u, 7u, 64u, 1000u, 4097u}) {
    for (const std::size_t block : {1u, 16u, 100u, 5000u}) {
      std::string text(size, ' ');
      for (char& c : text) c = static_cast<char>(random());
      // The text in random slices, in any order, each added by one of three ranks.
      std::vector<std::pair<std::size_t, std::size_t>> pieces;
      for (std::size_t at = 0; at < size;) {
        const std::size_t n = std::min<std::size_t>(size - at, 1 + random() % 300);
        pieces.emplace_back(at, n);
        at += n;
      }
      std::ranges::shuffle(pieces, random);
      std::vector<BlockSums> ranks(3, BlockSums(size, block));
      for (const auto& [at, n] : pieces) {
        ranks[random() % 3].add(at, as_bytes_of(std::string_view(text).substr(at, n)));
      }
      for (int rank : {2, 1}) ranks[0].join(ranks[static_cast<std::size_t>(rank)].parts());
      const std::vector<std::uint64_t> sums = ranks[0].sums();
      ASSERT_EQ(sums.size(), (size + block - 1) / block);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT_EQ(sums[i], crc64(std::string_view(text).substr(i * block, block)));
      }
    }
  }
}

TEST(Crc64, BytesBeyondTheFileAreRefused) {
  BlockSums sums(10, 4);
  EXPECT_THROW(sums.add(8, as_bytes_of("abc")), Error);
  EXPECT_THROW(sums.join(std::vector<std::uint64_t>(2)), Error);
}

}  // namespace
}  // namespace trident
