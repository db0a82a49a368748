// Draws placements at random: the shards of all ranks tile the global tensor once, for any
// contiguous ranges of their buffers.
#include "parallel/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"

namespace trident::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t number(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  // Blocks that `size` divides. The end of the last block may be padding, even all of it.
  std::vector<std::int64_t> blocks(int size, std::int64_t& real) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(number(1, 3)));
    for (std::int64_t& block : list) block = size * number(1, 4);
    const std::int64_t all = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    real = number(0, 2) == 0 ? number(1, all) : all;
    return list;
  }

 private:
  std::mt19937 random_;
};

// A tensor sharded over tensor ranks, over pipeline ranks (as experts would be), over both or over
// neither, as each rank holds it.
std::vector<Placement> drawn(Draw& draw) {
  const int ranks[2] = {static_cast<int>(draw.number(1, 4)), static_cast<int>(draw.number(1, 3))};
  const bool vector = draw.number(0, 3) == 0, crossed = draw.number(0, 1) == 0;
  std::vector<std::int64_t> blocks[2];
  std::int64_t extents[2] = {draw.number(1, 9), draw.number(1, 9)};
  for (int dim = 0; dim < (vector ? 1 : 2); ++dim) {
    if (draw.number(0, 2) > 0) blocks[dim] = draw.blocks(ranks[dim], extents[dim]);
  }
  std::vector<Placement> all;
  for (int a = 0; a < ranks[0]; ++a) {
    for (int b = 0; b < ranks[1]; ++b) {
      // Of ranks with the same data only the first is tested.
      if ((blocks[0].empty() && a > 0) || (blocks[1].empty() && b > 0)) continue;
      Placement placement =
          Placement::replicated(vector ? Shape{extents[0]} : Shape{extents[0], extents[1]});
      const Group groups[2] = {crossed ? Group::pipeline : Group::tensor,
                               crossed ? Group::tensor : Group::pipeline};
      for (int dim = 0; dim < 2; ++dim) {
        if (!blocks[dim].empty()) {
          placement.shard(dim, groups[dim], blocks[dim], dim == 0 ? a : b, ranks[dim]);
        }
      }
      all.push_back(placement);
    }
  }
  return all;
}

std::int64_t columns_of(const Placement& placement) {
  return placement.global.rank() == 1 ? 1 : placement.global.dim(1);
}

TEST(Placement, TheBoxesOfAllRanksTileTheTensorOnceWhateverStretchesAreAskedFor) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto all = drawn(draw);
    std::vector<int> covered(static_cast<std::size_t>(all.front().global.numel()));
    for (const Placement& placement : all) {
      const std::int64_t numel = placement.numel();
      std::vector<std::int64_t> whole(static_cast<std::size_t>(numel), -1);  // by local element
      for (std::int64_t begin = 0; begin < numel;) {
        const std::int64_t count = std::min(draw.number(1, 1 + numel), numel - begin);
        for (const LocalSlice& held : placement.slices(begin, count)) {
          each_range(held, columns_of(placement),
                     [&](std::int64_t local, std::int64_t at, std::int64_t n) {
                       ASSERT_GE(local, begin);
                       ASSERT_LE(local + n, begin + count);
                       for (std::int64_t i = 0; i < n; ++i) {
                         ASSERT_EQ(
                             std::exchange(whole[static_cast<std::size_t>(local + i)], at + i), -1);
                         ++covered.at(static_cast<std::size_t>(at + i));
                       }
                     });
        }
        begin += count;
      }
      // The reverse: for any slice, the elements in it and their local offsets.
      const Shape& global = placement.global;
      const std::int64_t columns = columns_of(placement);
      TensorSlice slice{draw.number(0, global.dim(0) - 1), draw.number(0, columns - 1), 0, 0};
      slice.rows = draw.number(1, global.dim(0) - slice.row);
      slice.columns = draw.number(1, columns - slice.column);
      std::vector<std::int64_t> held(whole.size(), -1), expected(whole.size(), -1);
      for (const LocalSlice& one : placement.local_slices_of(slice)) {
        each_range(one, columns, [&](std::int64_t local, std::int64_t at, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) held[static_cast<std::size_t>(local + i)] = at + i;
        });
      }
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const std::int64_t row = whole[i] / columns, column = whole[i] % columns;
        const bool inside = whole[i] >= 0 && row >= slice.row && row < slice.row + slice.rows &&
                            column >= slice.column && column < slice.column + slice.columns;
        if (inside) expected[i] = whole[i];
      }
      ASSERT_EQ(held, expected);
    }
    ASSERT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
  }
}

TEST(Placement, KnownCases) {
  // Query, key and value are stacked; rank 1 of 2 holds the second half of each.
  const Placement stacked = Placement::replicated({8, 3}).shard(0, Group::tensor, {4, 2, 2}, 1, 2);
  EXPECT_EQ(stacked.local(), (Shape{4, 3}));
  EXPECT_THAT(stacked.slices(),
              ElementsAre(LocalSlice{{2, 0, 2, 3}, 0, 3}, LocalSlice{{5, 0, 1, 3}, 6, 3},
                          LocalSlice{{7, 0, 1, 3}, 9, 3}));
  EXPECT_THAT(stacked.slices(2, 5),  // the end of a row, a row, the beginning of one
              ElementsAre(LocalSlice{{2, 2, 1, 1}, 2, 3}, LocalSlice{{3, 0, 1, 3}, 3, 3},
                          LocalSlice{{5, 0, 1, 1}, 6, 3}));
  // The table has 5 rows and is padded to 8: the last of 4 ranks holds only padding.
  const auto table = [](int rank) {
    return Placement::replicated({5, 2}).shard(0, Group::tensor, {8}, rank, 4);
  };
  EXPECT_THAT(table(2).slices(), ElementsAre(LocalSlice{{4, 0, 1, 2}, 0, 2}));
  EXPECT_THAT(table(3).slices(), IsEmpty());
  EXPECT_EQ(table(3).numel(), 4);
  // The first rank is the primary replica of a replicated tensor; the copy of a tied weight never
  // is.
  Placement whole = Placement::replicated({5, 2});
  const auto at = [](int place) { return [place](Group) { return place; }; };
  EXPECT_TRUE(whole.is_primary(at(0)));
  EXPECT_FALSE(whole.is_primary(at(1)));
  EXPECT_TRUE(table(3).is_primary(at(3)));
  whole.copy = true;
  EXPECT_FALSE(whole.is_primary(at(0)));
  // Ranks with the same data: a replicated tensor's are the whole tensor group; a shard's are those
  // that share the shard.
  EXPECT_TRUE(whole.is_same_over(Group::tensor));
  EXPECT_FALSE(table(3).is_same_over(Group::tensor));
  EXPECT_TRUE(table(3).is_same_over(Group::shard));
  EXPECT_TRUE(table(3).is_same_over(Group::replicas));
  EXPECT_FALSE(whole.is_same_over(Group::pipeline));
}

TEST(Placement, WhatDoesNotDivideOrIsCutTwiceIsRefused) {
  EXPECT_THROW(Placement::replicated({8, 3}).shard(1, Group::tensor, {3}, 0, 2), Error);
  EXPECT_THROW(Placement::replicated({8, 3}).shard(0, Group::tensor, {5, 3}, 0, 2), Error);
  EXPECT_THROW(Placement::replicated({8}).shard(1, Group::tensor, {2}, 0, 2), Error);
  Placement cut = Placement::replicated({8, 4}).shard(0, Group::tensor, {8}, 0, 2);
  EXPECT_THROW(cut.shard(1, Group::tensor, {4}, 0, 2), Error);
  EXPECT_THROW(cut.shard(0, Group::pipeline, {8}, 0, 2), Error);
}

}  // namespace
}  // namespace trident::testing
