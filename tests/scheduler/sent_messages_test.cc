#include "scheduler/sent_messages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/lower.h"
#include "scheduler/schedules.h"

namespace trident {
namespace {

// The most earlier messages of a rank that its peer has not yet received at one of the rank's
// sends.
std::size_t most_kept(const Schedule& schedule, int rank) {
  const auto lists = lower(schedule);
  const std::vector<std::size_t> found =
      SentMessages(schedule, lists).first_send_after_receipt(rank);
  std::size_t most = 0;
  for (std::size_t send = 0; send < found.size(); ++send) {
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(send);
    most = std::max<std::size_t>(
        most, static_cast<std::size_t>(std::count_if(
                  found.begin(), end, [&](std::size_t taken) { return taken > send; })));
  }
  return most;
}

TEST(SentMessages, AreTakenAtOnceWhereThePeerWaitsForThem) {
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_LE(most_kept(one_f_one_b(4, 16), rank), 1);
    EXPECT_LE(most_kept(gpipe(4, 16), rank), 1);
  }
}

// In a breadth-first schedule, rank 0 runs all forwards of its first chunk before it receives the
// last rank's messages for its second chunk. In the backward pass, rank 1 runs all of its second
// chunk before it receives for its first.
TEST(SentMessages, WaitWhileThePeerRunsOthersFirst) {
  const std::size_t of_16 = most_kept(looped_bfs(2, 16, 2), 1);
  const std::size_t of_32 = most_kept(looped_bfs(2, 32, 2), 1);
  EXPECT_GT(of_16, 8);
  EXPECT_EQ(of_32 - of_16, 16);
  EXPECT_GT(most_kept(looped_bfs(2, 32, 2), 0), 16);
}

}  // namespace
}  // namespace trident
