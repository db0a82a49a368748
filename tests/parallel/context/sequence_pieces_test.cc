#include "parallel/context/sequence_pieces.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trident {
namespace {

TEST(SequencePieces, HoldEachPositionOnceWithTheMostOnRank0) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (std::int64_t positions = 2 * ranks; positions <= 6 * ranks + 1; ++positions) {
      SCOPED_TRACE(::testing::Message() << positions << " positions, " << ranks << " ranks");
      const SequencePieces pieces(positions, ranks);
      std::vector<int> held(static_cast<std::size_t>(positions));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [head, tail] = pieces.of(rank);
        EXPECT_EQ(head.local, 0);
        EXPECT_EQ(tail.local, head.count);
        EXPECT_LE(head.end(), tail.begin);
        EXPECT_EQ(pieces.count(rank), head.count + tail.count);
        EXPECT_LE(pieces.count(rank), pieces.most());
        EXPECT_GE(pieces.count(rank), pieces.most() - 2);
        for (const SequencePiece& piece : {head, tail}) {
          EXPECT_GE(piece.count, positions / (2 * ranks));
          for (std::int64_t i = piece.begin; i < piece.end(); ++i) {
            ++held[static_cast<std::size_t>(i)];
          }
        }
      }
      EXPECT_EQ(held, std::vector<int>(static_cast<std::size_t>(positions), 1));
      EXPECT_EQ(pieces.most(), pieces.count(0));
    }
  }
}

TEST(SequencePieces, OfJoinedRanksAreThoseOfTheRanksTogether) {
  for (const std::int64_t positions : {24, 29, 64}) {
    const SequencePieces pieces(positions, 6), joined(positions, 2, 3);
    for (int place = 0; place < 2; ++place) {
      const auto both = joined.of(place);
      const auto front = pieces.of(3 * place), back = pieces.of(3 * place + 2);
      EXPECT_EQ(both[0].begin, front[0].begin);
      EXPECT_EQ(both[0].end(), back[0].end());
      EXPECT_EQ(both[1].begin, back[1].begin);
      EXPECT_EQ(both[1].end(), front[1].end());
      EXPECT_EQ(both[1].local, both[0].count);
      EXPECT_EQ(joined.count(place), both[0].count + both[1].count);
    }
    EXPECT_EQ(joined.count(0) + joined.count(1), positions);
  }
}

// The pairs of a query and a key at or before it.
TEST(SequencePieces, GiveTheRanksEqualWork) {
  const SequencePieces pieces(4096, 8);
  const double each = 4096.0 * 4097.0 / 2 / 8;
  for (int rank = 0; rank < 8; ++rank) {
    double work = 0;
    for (const SequencePiece& piece : pieces.of(rank)) {
      for (std::int64_t i = piece.begin; i < piece.end(); ++i) work += static_cast<double>(i + 1);
    }
    EXPECT_NEAR(work / each, 1, 1e-3) << rank;
  }
}

}  // namespace
}  // namespace trident
