#include "scheduler/schedules.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "scheduler/interleaved.h"
#include "scheduler/simulate.h"
#include "scheduler/validate.h"
#include "settings/config.h"
#include "tests/scheduler/sizes.h"
#include "tests/support/source_dir.h"

namespace trident {
namespace {

using testing::HasSubstr;

std::string row(const Schedule& schedule, int rank) {
  std::string text;
  for (const Action& action : schedule.ranks[rank]) {
    text += (text.empty() ? "" : " ") + to_string(action);
  }
  return text;
}

// The problem of a request that must be refused.
std::string refusal(const ScheduleRequest& request) {
  try {
    make_schedule(request);
  } catch (const RequestError& error) {
    return error.what();
  }
  ADD_FAILURE() << request.kind << " was not refused";
  return "";
}

TEST(Schedules, NaiveRunsOneMicroBatchAtATime) {
  const Schedule schedule = naive(2, 3);
  EXPECT_EQ(row(schedule, 0), "0F0 0B0 0F1 0B1 0F2 0B2");
  EXPECT_EQ(row(schedule, 1), "1F0 1B0 1F1 1B1 1F2 1B2");
}

TEST(Schedules, GpipeIsTheFigureOfHuang2019) {
  const Schedule schedule = gpipe(4, 4);
  EXPECT_EQ(row(schedule, 0), "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
  EXPECT_EQ(row(schedule, 3), "3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3");
}

TEST(Schedules, OneFOneBIsTheFigureOfNarayanan2021) {
  const Schedule s = one_f_one_b(4, 8);
  EXPECT_EQ(row(s, 0), "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7");
  EXPECT_EQ(row(s, 1), "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7");
  EXPECT_EQ(row(s, 2), "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7");
  EXPECT_EQ(row(s, 3), "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7");
}

TEST(Schedules, OneFOneBWithFewerMicroBatchesThanStages) {
  const Schedule s = one_f_one_b(4, 2);
  EXPECT_EQ(row(s, 0), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(row(s, 2), "2F0 2F1 2B0 2B1");
  EXPECT_EQ(row(s, 3), "3F0 3B0 3F1 3B1");
}

TEST(Schedules, InterleavedIsTheFigureOfNarayanan2021) {
  const Schedule s = interleaved_one_f_one_b(4, 8, 2);
  EXPECT_EQ(row(s, 0),
            "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 "
            "0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 "
            "0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7");
  EXPECT_EQ(row(s, 1),
            "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 "
            "1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 1B0 5F5 1B1 5F6 1B2 5F7 1B3 "
            "5B4 5B5 5B6 5B7 1B4 1B5 1B6 1B7");
  EXPECT_EQ(row(s, 2),
            "2F0 2F1 2F2 2F3 6F0 6F1 "
            "6F2 6B0 6F3 6B1 2F4 6B2 2F5 6B3 2F6 2B0 2F7 2B1 6F4 2B2 6F5 2B3 6F6 6B4 6F7 6B5 "
            "6B6 6B7 2B4 2B5 2B6 2B7");
  EXPECT_EQ(row(s, 3),
            "3F0 3F1 3F2 3F3 "
            "7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 "
            "7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7");
}

TEST(Schedules, InterleavedGroupsFollowTheFormula) {
  const auto size = [](int p, int m, int g) { return interleaved_group_size("any", p, m, g); };
  EXPECT_EQ(size(4, 8, 0), 4);
  EXPECT_EQ(size(4, 6, 0), 6);   // 6 / floor(6/4)
  EXPECT_EQ(size(4, 10, 0), 5);  // 10 / floor(10/4)
  EXPECT_EQ(size(4, 3, 0), 3);   // fewer micro-batches than stages: one group
  EXPECT_EQ(size(4, 14, 5), 5);  // 14 mod 5 = 4 >= p
  // A smaller last group follows the same rule with its own size.
  const Schedule s = interleaved_one_f_one_b(2, 5, 2, 3);
  EXPECT_EQ(row(s, 1),
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4");
}

TEST(Schedules, LoopedBreadthFirstGoesThroughChunkAfterChunk) {
  const Schedule s = looped_bfs(2, 3, 2);
  EXPECT_EQ(row(s, 1), "1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0");
}

TEST(Schedules, ZeroBubbleH1AndH2AreTheFiguresOfQi2023) {
  EXPECT_EQ(row(zb_h1(2, 4), 0), "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row(zb_h1(2, 4), 1), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3");
  EXPECT_EQ(row(zb_h2(2, 4), 0), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3");
  EXPECT_EQ(row(zb_h2(2, 4), 1), "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3");
}

// These are the results of zero-bubble's own simulator, in microseconds: the rate by makespan, for
// H2 by span.
TEST(Schedules, ZeroBubblesAreThePublishedOnes) {
  struct Row {
    int p, m;
    double f, b, w, c, plain, h1, h2;
  };
  for (const Row& r : {Row{8, 24, 18522, 18086, 9337, 601, 0.2431, 0.1585, 0.1083},
                       Row{16, 48, 11347, 11248, 8132, 377, 0.2552, 0.1397, 0.0672}}) {
    const auto bubble = [&](const Schedule& schedule) {
      return simulate(schedule, stage_times(schedule, {{r.f}, {r.b}, {r.w}}), r.c).bubble;
    };
    EXPECT_NEAR(bubble(one_f_one_b(r.p, r.m)).ratio, r.plain, 5e-5);
    EXPECT_NEAR(bubble(zb_h1(r.p, r.m)).ratio, r.h1, 5e-5);
    EXPECT_NEAR(bubble(zb_h2(r.p, r.m)).ratio_span, r.h2, 5e-5);
  }
}

TEST(Schedules, ZeroBubbleOnAVHasNoneWhereTheThreeTimesAreEqual) {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 13}, {8, 16}}) {
    const Schedule s = zbv(p, m);
    EXPECT_NEAR(simulate(s, stage_times(s, {}), 0).bubble.ratio_span, 0, 1e-12) << p << " " << m;
  }
}

TEST(Schedules, DualPipeVPairsForwardsWithBackwards) {
  const Schedule s = dualpipev(2, 4);
  std::string cells;
  append_cells(cells, s.ranks[1], " ");
  EXPECT_EQ(cells,
            "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B "
            "(2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 1I3 2W3 1W3");
}

// tests/peers/schedule_peer.py wrote the file, and compares more sizes with PyTorch itself.
TEST(Schedules, OrdersAreThoseOfPyTorch) {
  std::ifstream file(source_dir() + "/tests/scheduler/pytorch_orders.txt");
  ASSERT_TRUE(file.good());
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, testing::StartsWith("# torch.distributed.pipelining of PyTorch"));
  std::map<std::string, int> compared;
  while (std::getline(file, line)) {
    ScheduleRequest request;
    std::istringstream(line) >> request.kind >> request.stages >> request.microbatches >>
        request.chunks;
    const Schedule schedule = make_schedule(request);
    SCOPED_TRACE(line);
    for (const auto& actions : schedule.ranks) {
      std::string cells;
      append_cells(cells, actions, ",");
      ASSERT_TRUE(std::getline(file, line));
      EXPECT_EQ(cells, line);
    }
    ++compared[request.kind];
  }
  int all = 0;
  for (const auto& [kind, count] : compared) all += count;
  EXPECT_EQ(compared.size(), 7U);
  EXPECT_GE(all, 60);
}

TEST(Schedules, EveryKindIsValidAtEverySizeItAccepts) {
  for (const ScheduleRequest& request : small_requests()) {
    SCOPED_TRACE(fmt::format("{} p={} m={} v={} g={}", request.kind, request.stages,
                             request.microbatches, request.chunks, request.group_size));
    EXPECT_NO_THROW(validate(make_schedule(request)));
  }
}

// The bitwise equality of all layouts relies on this: gradients are added in micro-batch order.
TEST(Schedules, WeightGradientsOfAStageComeInAscendingMicroBatchOrder) {
  for (const ScheduleRequest& request : small_requests()) {
    if (request.kind == "looped_bfs") continue;
    SCOPED_TRACE(request.kind);
    const Schedule schedule = make_schedule(request);
    std::vector<int> next(schedule.total_stages(), 0);
    for (const auto& actions : schedule.ranks) {
      for (const Action& action : actions) {
        if (action.kind == Kind::forward || action.kind == Kind::backward_input) continue;
        EXPECT_EQ(action.microbatch, next[action.stage]++);
      }
    }
  }
}

TEST(Schedules, PeakInFlightIsTheFormula) {
  for (const ScheduleRequest& asked : small_requests()) {
    const ScheduleRequest r = complete(asked);
    const int p = r.stages, m = r.microbatches, v = r.chunks;
    const std::vector<double> peaks = peak_in_flight(make_schedule(r));
    for (int rank = 0; rank < p; ++rank) {
      if (r.kind == "naive") {
        EXPECT_EQ(peaks[rank], 1.0);
      }
      if (r.kind == "gpipe") {
        EXPECT_EQ(peaks[rank], m);
      }
      if (r.kind == "1f1b" || r.kind.starts_with("pipedream")) {
        EXPECT_EQ(peaks[rank], std::min(p - rank, m));
      }
      if (r.kind == "looped_bfs") {
        EXPECT_EQ(peaks[rank], m);
      }
      if (r.kind == "zb_h1") {
        EXPECT_LE(peaks[rank], p);
      }
      if (r.kind == "zb_h2") {
        EXPECT_LE(peaks[rank], 2 * p - 1);
      }
      if (r.kind == "zbv") {
        EXPECT_LE(peaks[rank], p);
      }
    }
    if (r.kind == "interleaved_1f1b" && r.group_size == p) {
      EXPECT_DOUBLE_EQ(peaks[0], std::min<double>(m, p * (1 + (p - 1.0) / (p * v))));
    }
  }
}

TEST(Schedules, ChunksDefaultByKind) {
  EXPECT_EQ(make_schedule({"1f1b", 2, 4, 0, 0}).chunks, 1);
  const Schedule interleaved = make_schedule({"interleaved_1f1b", 2, 4, 0, 0});
  EXPECT_EQ(interleaved.chunks, 2);
  EXPECT_EQ(interleaved.placement, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(interleaved.rank_of_stage(3), 1);
  EXPECT_THROW(interleaved.rank_of_stage(4), Error);
}

TEST(Schedules, AKindHoldsTheChunksOfItsRow) {
  for (const ScheduleKind& kind : schedule_registry()) {
    SCOPED_TRACE(kind.name);
    const auto accepts = [&](int chunks) {
      try {
        complete({kind.name, 2, 8, chunks, 0});
        return true;
      } catch (const RequestError&) {
        return false;
      }
    };
    const ChunkRule rule = kind.chunks;
    EXPECT_EQ(complete({kind.name, 2, 8, 0, 0}).chunks, rule == ChunkRule::any   ? 0
                                                        : rule == ChunkRule::one ? 1
                                                                                 : 2);
    EXPECT_EQ(accepts(1), rule != ChunkRule::two);
    EXPECT_EQ(accepts(2), rule != ChunkRule::one);
    EXPECT_EQ(accepts(3), rule == ChunkRule::any || rule == ChunkRule::several);
  }
}

TEST(Schedules, ARefusalNamesTheNumbersAndTheNearestChoice) {
  EXPECT_THAT(refusal({"interleaved_1f1b", 4, 9, 2, 0}), HasSubstr("use 8 or 10 micro-batches"));
  EXPECT_THAT(refusal({"interleaved_1f1b", 4, 10, 2, 9}), HasSubstr("the nearest that fits is 10"));
  EXPECT_THAT(refusal({"interleaved_1f1b", 4, 2, 2, 4}),
              HasSubstr("fewer micro-batches (2) than stages (4)"));
  EXPECT_THAT(refusal({"gpipe", 4, 8, 2, 0}), HasSubstr("gpipe runs 1 chunk per rank, got 2"));
  EXPECT_THAT(refusal({"1f1b", 4, 8, 0, 4}), HasSubstr("no micro-batch groups, got group size 4"));
  EXPECT_THAT(refusal({"1f1b", 0, 8, 0, 0}), HasSubstr("0 stages"));
  EXPECT_THAT(refusal({"interleaved", 4, 8, 0, 0}),
              HasSubstr("did you mean \"interleaved_1f1b\"?"));
  EXPECT_THAT(refusal({"1f1", 4, 8, 0, 0}), HasSubstr("did you mean \"1f1b\"?"));
  EXPECT_THAT(refusal({"zb_h1", 4, 7, 0, 0}), HasSubstr("use 8 micro-batches or more"));
  EXPECT_THAT(refusal({"dualpipev", 4, 7, 0, 0}), HasSubstr("use 8 micro-batches or more"));
  EXPECT_THAT(refusal({"pipedream_2bw", 6, 4, 0, 0}),
              HasSubstr("got 4 and 6; use 5 micro-batches or more"));
  EXPECT_THAT(refusal({"zbv", 4, 8, 3, 0}), HasSubstr("zbv runs 2 chunks per rank, got 3"));
}

}  // namespace
}  // namespace trident
