// Tests the warm-up of every schedule: it is closed, it is balanced once its leftovers are
// exchanged, and it has the expected length.
#include "scheduler/warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/ordered_channels.h"
#include "scheduler/sizes.h"

namespace trident {
namespace {

using Lists = std::vector<std::vector<LoweredAction>>;

// Runs only the warm-ups, each as far as possible.
void expect_closed(const Schedule& schedule, const Lists& lists, const WarmUp& warm_up) {
  std::set<int> sent;  // tags, which name a transfer of any two ranks
  std::vector<size_t> next(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      for (; next[rank] < warm_up.length[rank]; ++next[rank], moved = true) {
        const LoweredAction& a = lists[rank][next[rank]];
        const int tag = transfer_tag(a, schedule.microbatches);
        if (is_wait(a.step) && !sent.contains(tag)) break;
        if (is_send(a.step)) sent.insert(tag);
        if (a.step != Step::compute) continue;
        ASSERT_EQ(a.kind, Kind::forward);
        ASSERT_LT(a.stage + 1, schedule.total_stages());
      }
    }
  }
  EXPECT_EQ(next, warm_up.length);
}

void expect_balance(const Lists& lists, const WarmUp& warm_up) {
  std::map<std::tuple<int, int, Kind>, int> surplus;  // sender, receiver
  for (int rank = 0; rank < std::ssize(lists); ++rank) {
    for (size_t i = 0; i < warm_up.length[rank]; ++i) {
      const LoweredAction& a = lists[rank][i];
      const Kind kind = a.kind == Kind::forward ? a.kind : Kind::backward;
      if (is_send(a.step)) ++surplus[{rank, a.peer, kind}];
      if (is_post(a.step)) --surplus[{a.peer, rank, kind}];
    }
    for (const Unmatched& link : warm_up.unmatched[rank]) {
      EXPECT_GE(link.to_send, 0);
      EXPECT_GE(link.to_receive, 0);
      surplus[{rank, link.peer, link.kind}] += link.to_send;
      surplus[{link.peer, rank, link.kind}] -= link.to_receive;
    }
  }
  for (const auto& [link, left] : surplus) EXPECT_EQ(left, 0);
}

TEST(WarmUp, OfEveryKindIsClosedAndCanBeRunAgain) {
  for (const ScheduleRequest& request : small_requests()) {
    const Schedule schedule = make_schedule(request);
    SCOPED_TRACE(schedule.kind + " p " + std::to_string(request.stages) + " m " +
                 std::to_string(request.microbatches));
    for (const int ahead : {0, 1, 3}) {
      const Lists lists = lower(schedule, ahead);
      const WarmUp warm_up = warm_up_of(schedule, lists);
      expect_closed(schedule, lists, warm_up);
      expect_balance(lists, warm_up);
    }
  }
}

std::vector<int> forwards(const Schedule& schedule) {
  const Lists lists = lower(schedule);
  const WarmUp warm_up = warm_up_of(schedule, lists);
  std::vector<int> count;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    const auto begin = lists[rank].begin();
    count.push_back(static_cast<int>(
        std::count_if(begin, begin + static_cast<std::ptrdiff_t>(warm_up.length[rank]),
                      [](const LoweredAction& a) { return a.step == Step::compute; })));
  }
  return count;
}

TEST(WarmUp, HasTheWarmUpOfEachRank) {
  EXPECT_EQ(forwards(make_schedule({.kind = "1f1b", .stages = 4, .microbatches = 9})),
            (std::vector<int>{4, 3, 2, 0}));
  EXPECT_EQ(forwards(make_schedule({.kind = "zb_h2", .stages = 4, .microbatches = 9})),
            (std::vector<int>{7, 5, 3, 0}));
  EXPECT_EQ(forwards(make_schedule({.kind = "naive", .stages = 3, .microbatches = 4})),
            (std::vector<int>{1, 1, 0}));
}

TEST(WarmUp, OfAScheduleThatNeedsABackwardForItsForwardsEndsBeforeThat) {
  // In this V schedule rank 1 needs 1F1 before its first backward, and rank 0 runs 0F1 after its
  // own.
  const Schedule schedule{.kind = "file",
                          .stages = 2,
                          .microbatches = 2,
                          .chunks = 2,
                          .placement = {{0, 3}, {1, 2}},
                          .ranks = {{{Kind::forward, 0, 0},
                                     {Kind::forward, 3, 0},
                                     {Kind::backward, 3, 0},
                                     {Kind::forward, 0, 1},
                                     {Kind::forward, 3, 1},
                                     {Kind::backward, 3, 1},
                                     {Kind::backward, 0, 0},
                                     {Kind::backward, 0, 1}},
                                    {{Kind::forward, 1, 0},
                                     {Kind::forward, 2, 0},
                                     {Kind::forward, 1, 1},
                                     {Kind::forward, 2, 1},
                                     {Kind::backward, 2, 0},
                                     {Kind::backward, 1, 0},
                                     {Kind::backward, 2, 1},
                                     {Kind::backward, 1, 1}}}};
  EXPECT_EQ(forwards(schedule), (std::vector<int>{1, 2}));
}

TEST(WarmUp, IterationsOverlapWhereRanksEndOneAfterTheOther) {
  const auto overlaps = [](const char* kind) {
    return overlaps_next_iteration(make_schedule({.kind = kind, .stages = 4, .microbatches = 16}));
  };
  for (const char* kind : {"zb_h2", "zbv"}) EXPECT_TRUE(overlaps(kind)) << kind;
  for (const char* kind :
       {"naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "pipedream", "pipedream_2bw"}) {
    EXPECT_FALSE(overlaps(kind)) << kind;
  }
  EXPECT_FALSE(
      overlaps_next_iteration(make_schedule({.kind = "zb_h2", .stages = 1, .microbatches = 4})));
}

}  // namespace
}  // namespace trident
