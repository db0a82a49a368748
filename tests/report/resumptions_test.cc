#include "report/resumptions.h"

#include <gtest/gtest.h>

namespace trident {
namespace {

// Iterations 1 to `last`, one a second from second 1,000 on, with these starts.
ReportedRun run_of(std::int64_t last, std::vector<RunStart> starts) {
  ReportedRun run;
  run.about.starts = std::move(starts);
  for (std::int64_t k = 1; k <= last; ++k) {
    IterationMetrics m;
    m.iteration = k;
    m.iteration_time_ms = 1000;
    m.wall_time = 1000 + static_cast<double>(k);
    run.history.push_back(m);
  }
  return run;
}
RunStart start(double time, std::int64_t after, const std::string& layout) {
  return {.time = time, .after = after, .facts = {{"layout", layout}, {"host", "a"}}};
}

TEST(Resumptions, AreStartsWithIterationsInTheRun) {
  // Later starts replace the iterations of the start after 30. They resume after 20, and the second
  // of them succeeds.
  const ReportedRun run =
      run_of(60, {start(990, 0, "data 1"), start(1030, 30, "data 1"), start(1040, 20, "data 2"),
                  start(1050, 20, "data 3"), start(1090, 40, "data 3")});
  const std::vector<Resumption> list = resumptions_of(run);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].after, 20);
  EXPECT_EQ(list[0].seconds, 60);
  EXPECT_EQ(list[0].layout, "data 3");
  ASSERT_EQ(list[0].changes.size(), 1U);
  EXPECT_EQ(list[0].changes[0].name, "layout");
  EXPECT_EQ(list[0].changes[0].now, "data 3");
  EXPECT_EQ(list[0].changes[0].before, "data 1");
  EXPECT_EQ(list[1].after, 40);
  EXPECT_TRUE(list[1].changes.empty());
}

TEST(Resumptions, NoneOfARunThatBeganAnew) {
  const ReportedRun run = run_of(5, {start(990, 0, "data 1"), start(1000, 0, "data 2")});
  EXPECT_TRUE(resumptions_of(run).empty());
}

TEST(Resumptions, TimeBeginsWithTheFirstStartOrIteration) {
  EXPECT_EQ(begin_of(run_of(5, {start(990, 0, "")})), 990);
  EXPECT_EQ(begin_of(run_of(5, {})), 1000);
  EXPECT_EQ(begin_of(run_of(5, {start(0, 0, "")})), 1000);     // the start's time is unknown
  EXPECT_EQ(begin_of(run_of(5, {start(5000, 0, "")})), 1000);  // a clock that was set back
}

}  // namespace
}  // namespace trident
