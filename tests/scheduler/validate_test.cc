#include "scheduler/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "scheduler/schedules.h"

namespace trident {
namespace {

using testing::HasSubstr;

std::string problems(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

// 1F1B with every backward split into I and W.
Schedule split_backward(int stages, int microbatches) {
  Schedule schedule = one_f_one_b(stages, microbatches);
  for (auto& actions : schedule.ranks) {
    std::vector<Action> split;
    for (const Action& a : actions) {
      if (a.kind == Kind::backward) {
        split.push_back({Kind::backward_input, a.stage, a.microbatch});
        split.push_back({Kind::backward_weight, a.stage, a.microbatch});
      } else {
        split.push_back(a);
      }
    }
    actions = split;
  }
  return schedule;
}

TEST(Validate, AcceptsSplitBackwardsAndAnyPlacement) {
  EXPECT_EQ(problems(split_backward(3, 4)), "");
  // A V schedule: rank 0 holds the first and the last stage.
  const Schedule v{"zbv",
                   2,
                   1,
                   2,
                   {{0, 3}, {1, 2}},
                   {{{Kind::forward, 0, 0},
                     {Kind::forward, 3, 0},
                     {Kind::backward, 3, 0},
                     {Kind::backward, 0, 0}},
                    {{Kind::forward, 1, 0},
                     {Kind::forward, 2, 0},
                     {Kind::backward, 2, 0},
                     {Kind::backward, 1, 0}}}};
  EXPECT_EQ(problems(v), "");
  EXPECT_EQ(v.rank_of_stage(3), 0);
}

TEST(Validate, EveryDroppedActionIsNoticed) {
  const Schedule complete = split_backward(3, 4);
  for (int rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < complete.ranks[rank].size(); ++i) {
      Schedule schedule = complete;
      schedule.ranks[rank].erase(schedule.ranks[rank].begin() + i);
      const Action& gone = complete.ranks[rank][i];
      EXPECT_THAT(problems(schedule),
                  testing::AnyOf(HasSubstr("never runs"), HasSubstr("runs before")))
          << to_string(gone);
    }
  }
}

TEST(Validate, EveryDoubledActionIsNoticed) {
  const Schedule complete = split_backward(3, 4);
  for (int rank = 0; rank < 3; ++rank) {
    for (const Action& action : complete.ranks[rank]) {
      Schedule schedule = complete;
      schedule.ranks[rank].push_back(action);
      EXPECT_THAT(problems(schedule), HasSubstr("(" + to_string(action) + "): done already by"));
    }
  }
}

TEST(Validate, MovedActionsNameRankPositionAndAction) {
  Schedule schedule = one_f_one_b(2, 2);
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  EXPECT_THAT(problems(schedule), HasSubstr("rank 1 position 0 (1B0): runs before its 1F0"));

  schedule = split_backward(2, 2);
  std::swap(schedule.ranks[1][1], schedule.ranks[1][2]);
  EXPECT_THAT(problems(schedule), HasSubstr("rank 1 position 1 (1W0): runs before its 1I0"));

  schedule = one_f_one_b(2, 2);
  schedule.ranks[0].push_back(schedule.ranks[1].back());
  schedule.ranks[1].pop_back();
  EXPECT_THAT(problems(schedule), HasSubstr("rank 0 position 4 (1B1): stage 1 is held by rank 1"));

  schedule = one_f_one_b(2, 2);
  schedule.ranks[0][1].microbatch = 2;
  EXPECT_THAT(problems(schedule), HasSubstr("rank 0 position 1 (0F2): stages are in [0, 2)"));

  schedule = one_f_one_b(2, 2);
  schedule.ranks[1].push_back({Kind::backward_weight, 1, 0});
  EXPECT_THAT(problems(schedule),
              HasSubstr("rank 1 position 4 (1W0): the full backward at position 1"));
}

TEST(Validate, PlacementPutsEachStageOnOneRank) {
  Schedule schedule = interleaved_one_f_one_b(2, 2, 2);
  schedule.placement[1][1] = 2;
  EXPECT_THAT(problems(schedule), HasSubstr("stage 2 is on rank 0 and on rank 1"));
  schedule.placement[1][1] = 4;
  EXPECT_THAT(problems(schedule), HasSubstr("rank 1 holds stage 4, outside [0, 4)"));
  schedule.placement[1].pop_back();
  EXPECT_THAT(problems(schedule), HasSubstr("rank 1 holds 1 stages, needs 2"));
}

TEST(Validate, TheNumberOfWaitingTransfersIsBounded) {
  for (const int m : {max_waiting_transfers + 1, max_waiting_transfers + 2}) {
    Schedule schedule = gpipe(2, m);
    std::reverse(schedule.ranks[1].begin(), schedule.ranks[1].begin() + m);
    if (m == max_waiting_transfers + 1) {
      EXPECT_EQ(problems(schedule), "");
    } else {
      EXPECT_THAT(problems(schedule),
                  HasSubstr("rank 1 position 0 (1F257): 257 transfers that rank 0 sends before"));
    }
  }
}

TEST(Validate, ClaimedSizesAreRefusedBeforeMemoryIsTaken) {
  Schedule schedule = one_f_one_b(2, 2);
  schedule.microbatches = 2'000'000'000;
  EXPECT_THAT(problems(schedule), HasSubstr("8 actions can't cover"));
}

TEST(Validate, ADeadlockShowsItsCycle) {
  Schedule schedule = one_f_one_b(2, 2);
  // Rank 0 needs the gradient of micro-batch 0 before it sends micro-batch 1, and rank 1 runs
  // micro-batch 1 before that gradient.
  schedule.ranks[0] = {
      {Kind::forward, 0, 0}, {Kind::backward, 0, 0}, {Kind::forward, 0, 1}, {Kind::backward, 0, 1}};
  schedule.ranks[1] = {
      {Kind::forward, 1, 0}, {Kind::forward, 1, 1}, {Kind::backward, 1, 0}, {Kind::backward, 1, 1}};
  EXPECT_EQ(
      problems(schedule),
      "deadlock: rank 0 position 1 (0B0) waits for rank 1 position 2 (1B0), which comes after "
      "rank 1 position 1 (1F1) waits for rank 0 position 2 (0F1), which comes after "
      "rank 0 position 1 (0B0)");
}

TEST(Validate, ARankCanDeadlockItself) {
  Schedule schedule = interleaved_one_f_one_b(1, 1, 2);
  std::swap(schedule.ranks[0][0], schedule.ranks[0][1]);
  EXPECT_EQ(
      problems(schedule),
      "deadlock: rank 0 position 0 (1F0) waits for rank 0 position 1 (0F0), which comes after "
      "rank 0 position 0 (1F0)");
}

// Lists split from one order of all actions are valid if that order respects the dependencies.
TEST(Validate, AcceptsEveryListThatATopologicalOrderGives) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    const int p = 1 + random() % 4, v = 1 + random() % 3, m = 1 + random() % 5, n = p * v;
    Schedule schedule{"own", p, m, v, looped_placement(p, v), std::vector<std::vector<Action>>(p)};
    // The progress of each micro-batch: n forwards, then n backwards.
    std::vector<int> step(m, 0), open(m);
    for (int i = 0; i < m; ++i) open[i] = i;
    while (!open.empty()) {
      const size_t pick = random() % open.size();
      const int i = open[pick], k = step[i]++;
      const int stage = k < n ? k : 2 * n - 1 - k;
      schedule.ranks[schedule.rank_of_stage(stage)].push_back(
          {k < n ? Kind::forward : Kind::backward, stage, i});
      if (step[i] == 2 * n) open.erase(open.begin() + pick);
    }
    EXPECT_EQ(problems(schedule), "");
  }
}

}  // namespace
}  // namespace trident
