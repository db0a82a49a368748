#include "report/run_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/run_facts.h"
#include "support/temp_dir.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

// An iteration of 100 tokens and 1 TFLOP.
IterationMetrics iteration(std::int64_t number, double seconds) {
  IterationMetrics m;
  m.iteration = number;
  m.iteration_time_ms = 1e3 * seconds;
  m.tokens_per_second = 100 / seconds;
  m.tflops = 1 / seconds;
  return m;
}

// Nine quick iterations and one during which another program used the machine.
std::vector<IterationMetrics> uneven() {
  std::vector<IterationMetrics> history{iteration(1, 5)};
  for (int k = 2; k <= 10; ++k) history.push_back(iteration(k, 0.1));
  history.push_back(iteration(11, 9.1));
  return history;
}

TEST(RunSpeed, IsTokensOverTime) {
  std::vector<IterationMetrics> history = uneven();
  history.back().bubble_ratio = 0.5;
  const RunSpeed speed = speed_of(history, [](const auto&) { return 2e12; });
  EXPECT_TRUE(speed.without_first);
  EXPECT_EQ(speed.iterations, 10);
  EXPECT_NEAR(speed.seconds, 10, 1e-9);
  EXPECT_NEAR(speed.tokens_per_second, 100, 1e-9);  // the mean of their rates is 901
  EXPECT_NEAR(speed.step_ms, 1000, 1e-9);
  EXPECT_NEAR(speed.flops_per_second, 1e12, 1);
  EXPECT_NEAR(speed.mfu, 0.5, 1e-12);
  EXPECT_NEAR(speed.bubble_ratio, 0.5 * 9.1 / 10, 1e-12);
}

TEST(RunSpeed, CountsAnOnlyIterationAndTheFirstOfAResumedRun) {
  const RunSpeed one = speed_of({iteration(1, 2)}, {});
  EXPECT_FALSE(one.without_first);
  EXPECT_NEAR(one.tokens_per_second, 50, 1e-12);
  EXPECT_EQ(one.mfu, 0);  // unknown
  EXPECT_EQ(speed_of({iteration(7, 2), iteration(8, 2)}, {}).iterations, 2);
  EXPECT_EQ(speed_of({}, {}).iterations, 0);
  EXPECT_EQ(speed_of({iteration(1, 0), iteration(2, NAN)}, {}).iterations, 0);
}

TEST(RunRates, AreOneForARunWhereverTheyWereFound) {
  std::vector<IterationMetrics> history = uneven();
  RunAbout about;
  about.starts.push_back({.after = 0, .machines = {{"a", 1}}});
  about.starts.push_back({.after = 5, .machines = {{"a", 2}}});  // resumes on two machines
  about.best_rates = {{"a", 2e13}};
  const RunRates rates(about, history);
  EXPECT_EQ(rates.of(5), 2e13);
  EXPECT_EQ(rates.of(6), 4e13);
  EXPECT_NEAR(rates.mfu(history[1]), 0.5, 1e-12);
  EXPECT_NEAR(rates.mfu(history[6]), 0.25, 1e-12);
  // run.json keeps the rates.
  const RunAbout again = about_of(about_text(about));
  EXPECT_EQ(again.best_rates, about.best_rates);
  EXPECT_EQ(again.starts[1].machines, about.starts[1].machines);
}

TEST(RunRates, NoShareIsAboveOne) {
  std::vector<IterationMetrics> history = uneven();
  RunAbout about;
  about.starts.push_back({.after = 0, .machines = {{"a", 1}}});
  about.best_rates = {{"a", 4e12}};  // steps reached 10 TFLOP/s
  const RunRates rates(about, history);
  EXPECT_NEAR(rates.mfu(history[1]), 1, 1e-12);
  EXPECT_NEAR(rates.mfu(history.back()), 0.1 / 9.1, 1e-9);
  // A folder of an older version has only lines: the highest rate in these lines counts.
  history[1].mfu = 2.5;
  history[2].mfu = 0.8;
  const RunRates old({}, history);
  EXPECT_NEAR(old.mfu(history[1]), 0.8, 1e-9);
  EXPECT_NEAR(old.mfu(history[2]), 0.8, 1e-9);
  EXPECT_EQ(RunRates({}, uneven()).mfu(history[1]), 0);  // no rate is known
}

TEST(ReadRun, TakesRatesThatWereFoundSince) {
  const TempDir dir;
  std::string lines;
  for (const IterationMetrics& m : uneven()) lines += metrics_line(m).dump() + "\n";
  spit(dir / "metrics.jsonl", lines);
  spit(dir / "config.json", "{}");
  RunAbout about;
  about.starts.push_back({.after = 0, .machines = {{"a", 1}}});
  about.best_rates = {{"a", 2e13}};
  spit(dir / "run.json", about_text(about));
  const ReportedRun before = read_run(dir.path());
  const ReportedRun now = read_run(dir.path(), {{"a", 8e13}, {"b", 1e20}});
  const double then = RunRates(before.about, before.history).mfu(before.history[1]);
  EXPECT_NEAR(then, 0.5, 1e-9);
  EXPECT_NEAR(RunRates(now.about, now.history).mfu(now.history[1]), then / 4, 1e-9);
  EXPECT_THAT(run_report({now}), HasSubstr("of 80 TFLOP/s, a"));
}

TEST(RunFacts, NameTheSpeedAndTheRateThatMfuRefersTo) {
  ReportedRun run;
  run.history = uneven();
  run.about.starts.push_back(
      {.after = 0, .facts = {{"busy", "busy machine: so"}}, .machines = {{"a", 2}}});
  run.about.best_rates = {{"a", 1e12}};
  const std::string facts = facts_of(run).dump();
  EXPECT_THAT(facts, HasSubstr("100 tokens/s, 1.000 s an iteration (mean without the first)"));
  EXPECT_THAT(facts, HasSubstr("of 10 TFLOP/s, 2 x a"));
  EXPECT_THAT(facts, HasSubstr("busy machine: so"));
}

}  // namespace
}  // namespace trident::testing
