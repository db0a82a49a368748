#include "parallel/rank_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace trident {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Axis axes[] = {Axis::tensor, Axis::data, Axis::pipeline};
constexpr const char* orders[] = {"tp-dp-pp", "tp-pp-dp", "dp-tp-pp",
                                  "dp-pp-tp", "pp-tp-dp", "pp-dp-tp"};

template <class F>
void expect_request_error(F&& f, const std::string& text) {
  try {
    f();
    FAIL() << "no error, wanted: " << text;
  } catch (const RequestError& e) {
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

TEST(RankGrid, DefaultOrderIsMegatrons) {
  // Megatron-LM's example: 16 ranks, tensor 2, pipeline 4 (so data 2).
  const RankGrid grid(2, 2, 4);
  EXPECT_EQ(grid.world_size(), 16);
  EXPECT_THAT(grid.group(0, Axis::tensor), ElementsAre(0, 1));
  EXPECT_THAT(grid.group(15, Axis::tensor), ElementsAre(14, 15));
  EXPECT_THAT(grid.group(1, Axis::data), ElementsAre(1, 3));
  EXPECT_THAT(grid.group(12, Axis::data), ElementsAre(12, 14));
  EXPECT_THAT(grid.group(0, Axis::pipeline), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(grid.group(7, Axis::pipeline), ElementsAre(3, 7, 11, 15));
  EXPECT_THAT(grid.embedding_group(7), ElementsAre(3, 15));
  EXPECT_EQ(grid.coordinates(13), (Coordinates{1, 0, 3}));
}

TEST(RankGrid, EveryOrderIsTheReshapeItNames) {
  for (const std::string order : orders) {
    const RankGrid grid(3, 2, 5, order);
    int rank = 0;
    // Counts like nested loops, the first named axis innermost.
    const auto size_of_name = [&](int i) {
      const std::string name = order.substr(static_cast<std::size_t>(i) * 3, 2);
      return name == "tp" ? 2 : name == "dp" ? 3 : 5;
    };
    for (int c = 0; c < size_of_name(2); ++c) {
      for (int b = 0; b < size_of_name(1); ++b) {
        for (int a = 0; a < size_of_name(0); ++a) {
          Coordinates at;
          const int values[] = {a, b, c};
          for (int i = 0; i < 3; ++i) {
            const std::string name = order.substr(static_cast<std::size_t>(i) * 3, 2);
            (name == "tp" ? at.tensor : name == "dp" ? at.data : at.pipeline) = values[i];
          }
          EXPECT_EQ(grid.coordinates(rank), at) << order;
          EXPECT_EQ(grid.rank(at), rank) << order;
          ++rank;
        }
      }
    }
  }
}

TEST(RankGrid, TheGroupsOfEveryAxisPartitionTheWorldAndAllMembersAgree) {
  for (const std::string order : orders) {
    for (const auto& [dp, tp, pp] : {std::array{1, 1, 1}, {2, 2, 2}, {3, 1, 2}, {4, 3, 5}}) {
      const RankGrid grid(dp, tp, pp, order);
      for (const Axis axis : axes) {
        std::multiset<int> seen;
        for (int r = 0; r < grid.world_size(); ++r) {
          const auto members = grid.group(r, axis);
          ASSERT_EQ(static_cast<int>(members.size()), grid.size(axis));
          for (const int m : members) EXPECT_EQ(grid.group(m, axis), members);
          if (members[0] == r) seen.insert(members.begin(), members.end());
        }
        EXPECT_EQ(static_cast<int>(seen.size()), grid.world_size());
        EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
      }
    }
  }
}

TEST(RankGrid, WrongArgumentsAreNamed) {
  expect_request_error([] { RankGrid(2, 0, 1); }, "tp size is 0");
  expect_request_error([] { RankGrid(2, 1, 1, "tp-dp"); }, "rank order 'tp-dp' must name");
  expect_request_error([] { RankGrid(2, 1, 1, "tp-dp-tp"); }, "'tp-dp-tp'");
  expect_request_error([] { RankGrid(1 << 20, 1 << 20, 1 << 20); }, "is more than 16777216 ranks");
  const RankGrid grid(2, 2, 2);
  expect_request_error([&] { grid.coordinates(8); }, "rank 8 is not in a world of 8 ranks");
  expect_request_error([&] { grid.rank({0, 2, 0}); }, "dp coordinate 2 is not one of 0 to 1");
}

}  // namespace
}  // namespace trident
