// Compares the schedules that auto finds with published rates and with lower bounds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "scheduler/lower_bound.h"
#include "scheduler/schedules.h"
#include "scheduler/validate.h"
#include "scheduler/warm_up.h"

namespace trident {
namespace {

// Sanitizers make a search ten times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool all_rows = false;
#else
constexpr bool all_rows = true;
#endif

// Qi et al. 2023 (arXiv 2401.10241), table 5: microseconds, and bubbles over a rank's span with
// memory for p and for 2p micro-batches.
struct Row {
  int p, m;
  double forward, input, weight, transfer, zb_1p, zb_2p;
  int heads, hidden;  // of the model, with sequences of 1024
};
const std::vector<Row> published = {{8, 24, 18522, 18086, 9337, 601, .1585, .0433, 24, 2304},
                                    {8, 32, 18513, 18086, 9331, 626, .1242, .0039, 24, 2304},
                                    {8, 64, 18546, 18097, 9321, 762, .0674, .0026, 24, 2304},
                                    {8, 24, 29718, 29444, 19927, 527, .1323, .0029, 32, 4096},
                                    {8, 32, 29802, 29428, 19530, 577, .1045, .0022, 32, 4096},
                                    {8, 64, 29935, 29621, 19388, 535, .0554, .0010, 32, 4096},
                                    {16, 48, 11347, 11248, 8132, 377, .1397, .0066, 40, 5120},
                                    {16, 64, 11307, 11254, 8101, 379, .1088, .0054, 40, 5120},
                                    {16, 128, 11325, 11308, 8109, 378, .0576, .0028, 40, 5120},
                                    {32, 96, 10419, 10207, 7715, 408, .1421, .0038, 48, 6144},
                                    {32, 128, 10408, 10204, 7703, 408, .1106, .0029, 48, 6144},
                                    {32, 256, 10402, 10248, 7698, 460, .0594, .0018, 48, 6144}};

ScheduleRequest request_of(const Row& row, double limit) {
  // The paper's memory: F keeps 34h + 5as bytes of a token and layer, of which W needs 32h.
  const double h = row.hidden, kept = 32 * h / (34 * h + 5.0 * row.heads * 1024);
  return {.kind = "auto",
          .stages = row.p,
          .microbatches = row.m,
          .chunks = 1,
          .memory = {.most = {limit}, .kept_for_weights = kept},
          .times = {{row.forward}, {row.input}, {row.weight}},
          .transfer = row.transfer,
          .objective = Objective::span};
}

LowerBounds bounds_of(const ScheduleRequest& request) {
  return lower_bounds(SearchProblem::of(
      request,
      {{}, request.stages, request.microbatches, 1, looped_placement(request.stages, 1), {}}));
}

double work_of(const Row& row) {
  return row.m * (row.forward + row.input + row.weight);
}

TEST(Search, ReachesThePublishedRatesInTheirMemory) {
  for (const Row& row : published) {
    if (!all_rows && &row != published.data()) continue;
    for (const int times : {1, 2}) {
      SCOPED_TRACE(fmt::format("p {} m {} F {} memory {}p", row.p, row.m, row.forward, times));
      const ScheduleRequest request = request_of(row, times * row.p);
      const Schedule found = make_schedule(request);  // keeps to the limit, or throws
      validate(found);
      const Bubble bubble =
          simulate(found, stage_times(found, request.times), request.transfer).bubble;
      const double rate = times == 1 ? row.zb_1p : row.zb_2p;
      EXPECT_LE(bubble.ratio_span, rate + 5e-5);  // the table has four digits
      // The span is within 1% of the lower bound.
      EXPECT_LE(bubble.longest_span, 1.01 * bounds_of(request).span);
    }
  }
}

// If all that F keeps were held until W, the table's rates would be impossible: the first rank
// would wait for the last rank's weight gradients.
TEST(Search, TheTablesMemoryIsPartlyFreedBeforeTheWeightGradient) {
  const Row& row = published[1];
  ScheduleRequest request = request_of(row, 16);
  request.memory.kept_for_weights = 1.0;
  const double bound = bounds_of(request).span;
  EXPECT_NEAR(1 - work_of(row) / bound, 0.0784, 5e-5);
  const Schedule found = make_schedule(request);
  const double span =
      simulate(found, stage_times(found, request.times), request.transfer).bubble.longest_span;
  EXPECT_NEAR(span, bound, 1e-6 * bound);
}

TEST(Search, TheMemoryLimitIsOfEachRank) {
  ScheduleRequest request{.kind = "auto", .stages = 4, .microbatches = 12, .chunks = 1};
  request.memory = {.most = {3, 5, 2, 1.5}, .kept_for_weights = 0.5};
  const auto makespan = [&] {
    const Schedule found = make_schedule(request);
    const std::vector<double> peaks = peak_in_flight(found, 0.5);
    for (int rank = 0; rank < 4; ++rank) EXPECT_LE(peaks[rank], request.memory.of(rank));
    return simulate(found, stage_times(found, request.times)).bubble.makespan;
  };
  request.objective = Objective::makespan;
  const double unequal = makespan();
  request.memory.most = {1.5};
  EXPECT_GT(makespan(), unequal);  // unequal limits are used
  request.memory.most = {3, 5};
  EXPECT_THROW(make_schedule(request), RequestError);
  request.memory.most = {0.5};  // less than one micro-batch
  EXPECT_THROW(make_schedule(request), RequestError);
}

TEST(Search, StepIsTheSpanWhereIterationsOverlapAndElseTheMakespan) {
  ScheduleRequest request{.kind = "auto", .stages = 4, .microbatches = 16};
  const auto value = [&](Objective made_for, Objective measured) {
    request.objective = made_for;
    const Schedule s = make_schedule(request);
    return value_of(measured, s, simulate(s, stage_times(s, request.times)).bubble);
  };
  request.memory.most = {8};
  const double step = value(Objective::step, Objective::step);
  EXPECT_LE(step, value(Objective::makespan, Objective::step) + 1e-9);
  EXPECT_LT(step, value(Objective::makespan, Objective::makespan) - 1e-9);
  EXPECT_DOUBLE_EQ(step, 48.0);  // no bubble at all
  // 1F1B's iterations don't overlap.
  const Schedule plain = make_schedule({.kind = "1f1b", .stages = 4, .microbatches = 16});
  ASSERT_FALSE(overlaps_next_iteration(plain));
  const Bubble bubble = simulate(plain, stage_times(plain, {})).bubble;
  EXPECT_EQ(value_of(Objective::step, plain, bubble), bubble.makespan);
}

TEST(Search, IsTheSameTwiceAndEndsInTheTimeThatItIsGiven) {
  ScheduleRequest request{.kind = "auto", .stages = 6, .microbatches = 20, .transfer = 0.3};
  request.memory.most = {6};
  request.times = {{1.0, 1.3, 1.1, 1.0, 0.9, 1.6}, {1.2}, {0.7}};
  if (all_rows) {
    EXPECT_EQ(make_schedule(request).ranks, make_schedule(request).ranks);
  }
  request.search_seconds = 0.3;
  const auto begun = std::chrono::steady_clock::now();
  validate(make_schedule(request));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
  EXPECT_LT(taken.count(), all_rows ? 3.0 : 30.0);  // one try more than the limit, at most
}

}  // namespace
}  // namespace trident
