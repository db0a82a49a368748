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
  std::mt19937& random() { return random_; }
  // Blocks that `size` divides, of at most `most` elements a rank. The end of the last block may be
  // padding, even all of it.
  std::vector<std::int64_t> blocks(int size, std::int64_t most, std::int64_t& real) {
    std::vector<std::int64_t> list(static_cast<std::size_t>(number(1, 3)));
    for (std::int64_t& block : list) block = size * number(1, most);
    const std::int64_t all = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    real = number(0, 2) == 0 ? number(1, all) : all;
    return list;
  }

 private:
  std::mt19937 random_;
};

// The groups that shard a dimension, in their order, and its blocks.
struct DrawnDim {
  std::int64_t extent = 0;
  std::vector<std::size_t> groups;
  std::vector<std::int64_t> blocks;
};
constexpr Group groups[] = {Group::tensor, Group::pipeline, Group::batch, Group::shard};
constexpr std::size_t group_count = std::size(groups);

// A tensor of one to four dimensions as each rank holds it: each group shards one of the dimensions
// or none, and several may shard the same.
std::vector<Placement> drawn(Draw& draw) {
  int sizes[group_count];
  const auto rank = static_cast<std::size_t>(draw.number(1, 4));
  std::vector<DrawnDim> dims(rank);
  for (std::size_t g = 0; g < group_count; ++g) {
    sizes[g] = static_cast<int>(draw.number(1, 3));
    const auto dim = static_cast<std::size_t>(draw.number(0, 2 * static_cast<int>(rank)));
    if (dim < rank) dims[dim].groups.push_back(g);
  }
  Shape global;
  for (DrawnDim& dim : dims) {
    std::shuffle(dim.groups.begin(), dim.groups.end(), draw.random());
    int all = 1;
    for (const std::size_t g : dim.groups) all *= sizes[g];
    dim.extent = draw.number(1, rank > 2 ? 4 : 9);
    if (!dim.groups.empty()) dim.blocks = draw.blocks(all, rank > 2 ? 2 : 4, dim.extent);
    global.append(dim.extent);
  }
  std::vector<Placement> placements{Placement::replicated(global)};
  for (std::size_t d = 0; d < rank; ++d) {
    if (dims[d].groups.empty()) continue;
    std::vector<std::vector<Placement::Share>> all{{}};  // the shares of each rank
    for (const std::size_t g : dims[d].groups) {
      std::vector<std::vector<Placement::Share>> next;
      for (const auto& shares : all) {
        for (int place = 0; place < sizes[g]; ++place) {
          next.push_back(shares);
          next.back().push_back({groups[g], place, sizes[g]});
        }
      }
      all = std::move(next);
    }
    std::vector<Placement> next;
    for (const Placement& placement : placements) {
      for (const auto& shares : all) {
        next.push_back(placement);
        next.back().shard(static_cast<int>(d), shares, dims[d].blocks);
      }
    }
    placements = std::move(next);
  }
  return placements;
}

// The global element of each local element, from the indices of each dimension; -1: padding.
std::vector<std::int64_t> by_indices(const Placement& placement) {
  const Shape& global = placement.global;
  std::vector<std::int64_t> elements{0};
  for (int dim = 0; dim < global.rank(); ++dim) {
    std::vector<Placement::Shard> shards = placement.shardings[dim].shards;
    if (shards.empty()) shards = {{0, global.dim(dim)}};
    std::vector<std::int64_t> next;
    for (const std::int64_t element : elements) {
      for (const Placement::Shard& shard : shards) {
        for (std::int64_t i = shard.begin; i < shard.begin + shard.count; ++i) {
          const bool real = element >= 0 && i < global.dim(dim);
          next.push_back(real ? element * global.dim(dim) + i : -1);
        }
      }
    }
    elements = std::move(next);
  }
  return elements;
}

TEST(Placement, TheShardsOfAllRanksTileTheTensorOnceForAnyRangesOfTheirBuffers) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto all = drawn(draw);
    std::vector<int> covered(static_cast<std::size_t>(all.front().global.numel()));
    for (const Placement& placement : all) {
      const std::int64_t numel = placement.numel();
      ASSERT_EQ(placement.local().numel(), numel);
      const std::int64_t columns = placement.global.matrix_columns();
      std::vector<std::int64_t> indices(static_cast<std::size_t>(numel), -1);  // by local element
      for (std::int64_t begin = 0; begin < numel;) {
        const std::int64_t count = std::min(draw.number(1, 1 + numel), numel - begin);
        for (const LocalSlice& held : placement.slices(begin, count)) {
          each_range(held, columns, [&](std::int64_t local, std::int64_t at, std::int64_t n) {
            ASSERT_GE(local, begin);
            ASSERT_LE(local + n, begin + count);
            for (std::int64_t i = 0; i < n; ++i) {
              ASSERT_EQ(std::exchange(indices[static_cast<std::size_t>(local + i)], at + i), -1);
              ++covered.at(static_cast<std::size_t>(at + i));
            }
          });
        }
        begin += count;
      }
      ASSERT_EQ(indices, by_indices(placement));
      // The reverse: for any slice, the elements in it and their local offsets.
      const std::int64_t rows = placement.global.matrix_rows();
      TensorSlice slice{draw.number(0, rows - 1), draw.number(0, columns - 1), 0, 0};
      slice.rows = draw.number(1, rows - slice.row);
      slice.columns = draw.number(1, columns - slice.column);
      std::vector<std::int64_t> held(indices.size(), -1), expected(indices.size(), -1);
      for (const LocalSlice& one : placement.local_slices_of(slice)) {
        each_range(one, columns, [&](std::int64_t local, std::int64_t at, std::int64_t n) {
          for (std::int64_t i = 0; i < n; ++i) held[static_cast<std::size_t>(local + i)] = at + i;
        });
      }
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t row = indices[i] / columns, column = indices[i] % columns;
        const bool inside = indices[i] >= 0 && row >= slice.row && row < slice.row + slice.rows &&
                            column >= slice.column && column < slice.column + slice.columns;
        if (inside) expected[i] = indices[i];
      }
      ASSERT_EQ(held, expected);
    }
    ASSERT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
  }
}

TEST(Placement, HasTheKnownSlicesAndReplicas) {
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
  Placement replicated = Placement::replicated({5, 2});
  const auto at = [](int place) { return [place](Group) { return place; }; };
  EXPECT_TRUE(replicated.is_primary(at(0)));
  EXPECT_FALSE(replicated.is_primary(at(1)));
  EXPECT_TRUE(table(3).is_primary(at(3)));
  replicated.copy = true;
  EXPECT_FALSE(replicated.is_primary(at(0)));
  // Ranks with the same data: a replicated tensor's are the full tensor group; a shard's are those
  // that share the shard.
  EXPECT_TRUE(replicated.is_same_over(Group::tensor));
  EXPECT_FALSE(table(3).is_same_over(Group::tensor));
  EXPECT_TRUE(table(3).is_same_over(Group::shard));
  EXPECT_TRUE(table(3).is_same_over(Group::replicas));
  EXPECT_FALSE(replicated.is_same_over(Group::pipeline));
}

// Experts (3, 4, 2): the first dimension over one group, the second over two.
TEST(Placement, GroupsDivideADimensionInTheirOrder) {
  const Placement held = Placement::replicated({4, 8, 2})
                             .shard(0, Group::pipeline, {4}, 1, 2)
                             .shard(1, {{Group::tensor, 1, 2}, {Group::batch, 0, 2}}, {4, 4});
  EXPECT_EQ(held.local(), (Shape{2, 2, 2}));
  EXPECT_THAT(held.sharded_by(), ElementsAre(Group::pipeline, Group::tensor, Group::batch));
  // Rows number the first two dimensions: 2·8 + 2, 2·8 + 6, 3·8 + 2, 3·8 + 6.
  EXPECT_THAT(held.slices(),
              ElementsAre(LocalSlice{{18, 0, 1, 2}, 0, 2}, LocalSlice{{22, 0, 1, 2}, 2, 2},
                          LocalSlice{{26, 0, 1, 2}, 4, 2}, LocalSlice{{30, 0, 1, 2}, 6, 2}));
  EXPECT_EQ(held.along(1).local(), (Shape{2}));
  // Dimensions after the sharded one that are unsharded are contiguous.
  const Placement first = Placement::replicated({4, 8, 2}).shard(0, Group::pipeline, {4}, 1, 2);
  EXPECT_THAT(first.slices(), ElementsAre(LocalSlice{{16, 0, 16, 2}, 0, 2}));
  // A group of one rank changes nothing: the blocks are those of the others.
  EXPECT_EQ(Placement::replicated({8})
                .shard(0, {{Group::batch, 0, 1}, {Group::tensor, 1, 2}}, {4, 4})
                .slices(),
            Placement::replicated({8}).shard(0, Group::tensor, {4, 4}, 1, 2).slices());
  EXPECT_THROW(Placement(held).shard(2, Group::batch, {2}, 0, 2), Error);
  EXPECT_THROW(Placement(held).shard(2, Group::loss, {2}, 0, 4), Error);
  EXPECT_THROW(Placement(held).shard(1, Group::loss, {8}, 0, 2), Error);
  EXPECT_THROW(Placement::replicated({8, 2}).shard(0, Group::tensor, {}, 0, 2), Error);
}

TEST(Placement, UnevenOrRepeatedShardingIsRefused) {
  EXPECT_THROW(Placement::replicated({8, 3}).shard(1, Group::tensor, {3}, 0, 2), Error);
  EXPECT_THROW(Placement::replicated({8, 3}).shard(0, Group::tensor, {5, 3}, 0, 2), Error);
  EXPECT_THROW(Placement::replicated({8}).shard(1, Group::tensor, {2}, 0, 2), Error);
  Placement cut = Placement::replicated({8, 4}).shard(0, Group::tensor, {8}, 0, 2);
  EXPECT_THROW(cut.shard(1, Group::tensor, {4}, 0, 2), Error);
  EXPECT_THROW(cut.shard(0, Group::pipeline, {8}, 0, 2), Error);
}

}  // namespace
}  // namespace trident::testing
