#include "parallel/collectives/choose.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

constexpr std::int64_t small = 1 << 14, large = 1 << 24;  // elements of 4 bytes

Algorithm chosen(bool shared_memory, int members, std::int64_t count) {
  return choose_all_reduce({shared_memory, members, count, 4 * count});
}

TEST(ChooseAllReduce, MembersThatShareMemoryGoDirect) {
  for (const int members : {2, 3, 8, 64}) {
    for (const std::int64_t count : {std::int64_t{1}, small, large}) {
      EXPECT_EQ(chosen(true, members, count), Algorithm::direct);
    }
  }
}

TEST(ChooseAllReduce, ARingServesTwoProcessesWithLargeMessagesInEqualSegments) {
  EXPECT_EQ(chosen(false, 2, small), Algorithm::direct);
  EXPECT_EQ(chosen(false, 2, large), Algorithm::ring);
  EXPECT_EQ(chosen(false, 2, large + 1), Algorithm::direct);
}

// Deterministic mode refuses every other algorithm there.
TEST(ChooseAllReduce, AboveTwoMembersNothingDependsOnTheCount) {
  for (const std::int64_t count : {std::int64_t{1}, small, large}) {
    EXPECT_EQ(chosen(false, 3, count), Algorithm::direct);
    EXPECT_EQ(chosen(false, 64, count), Algorithm::direct);
  }
}

}  // namespace
}  // namespace trident
