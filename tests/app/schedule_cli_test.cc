// `trident schedule` as a black box.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ScheduleCliTest : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "schedule");
    return run_program(arguments, {.directory = dir.path()});
  }
  json report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--format", "json"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, IsEmpty());
    return json::parse(outcome.out);
  }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& message) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << message;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_THAT(outcome.out, IsEmpty());
  }

  TempDir dir;
};

TEST_F(ScheduleCliTest, JsonIsTheDocumentOfTheInterface) {
  const json r = report({"--kind", "1f1b", "--stages", "4", "--microbatches", "8"});
  EXPECT_EQ(r["kind"], "1f1b");
  EXPECT_EQ(r["stages"], 4);
  EXPECT_EQ(r["microbatches"], 8);
  EXPECT_EQ(r["chunks"], 1);
  EXPECT_EQ(r["placement"], json::parse("[[0],[1],[2],[3]]"));
  EXPECT_EQ(r["ranks"][3][1], "3B0");
  EXPECT_NEAR(r["analytic"]["bubble_ratio"].get<double>(), 3.0 / 11, 1e-12);
  const json& s = r["simulated"];
  EXPECT_DOUBLE_EQ(s["makespan"], 33);
  EXPECT_NEAR(s["bubble_ratio"].get<double>(), 3.0 / 11, 1e-12);
  EXPECT_EQ(s["peak_in_flight"], json::parse("[4,3,2,1]"));
  EXPECT_EQ(s["weight_versions"], json::parse("[1,1,1,1]"));
  // F = 1, B + W = 2: rank 3 waits for its first input (3), rank 0 for gradients.
  EXPECT_DOUBLE_EQ(s["bubble_by_reason"][3]["warmup"], 3);
  EXPECT_DOUBLE_EQ(s["bubble_by_reason"][3]["drain"], 6);
  EXPECT_FALSE(r.contains("measured"));
  const json none = report({"--kind", "dualpipev", "--stages", "2", "--microbatches", "4"});
  EXPECT_TRUE(none["analytic"]["bubble_ratio"].is_null());
  EXPECT_EQ(none["placement"], json::parse("[[0,3],[1,2]]"));
  EXPECT_EQ(none["ranks"][1][6], "(2F2;1B0)OVERLAP_F_B");
}

TEST_F(ScheduleCliTest, AFileIsCheckedSimulatedAndWrittenBack) {
  const Outcome csv = run({"--kind", "zbv", "--stages", "3", "--microbatches", "7", "--format",
                           "csv", "--out", (dir / "own.csv").c_str()});
  EXPECT_EQ(csv.code, 0);
  EXPECT_THAT(csv.out, IsEmpty());
  const json own = report({"--file", "own.csv", "--times", "F=2,B=1.5:1:1,W=1,C=0.25"});
  const json zbv = report({"--kind", "zbv", "--stages", "3", "--microbatches", "7", "--times",
                           "F=2,B=1.5:1:1,W=1,C=0.25"});
  EXPECT_EQ(own["ranks"], zbv["ranks"]);
  EXPECT_EQ(own["simulated"], zbv["simulated"]);
  EXPECT_EQ(run({"--file", "own.csv", "--format", "csv"}).out, slurp(dir / "own.csv"));

  spit(dir / "stuck.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  expect_refused({"--file", "stuck.csv"},
                 "stuck.csv: deadlock: rank 0 position 1 (0B0) waits for rank 1 position 3 (1B0), "
                 "which comes after rank 1 position 0 (1F1) waits for rank 0 position 2 (0F1)");
  spit(dir / "bad.csv", "0F0,0X0\n1F0,1B0\n");
  expect_refused({"--file", "bad.csv"}, "bad.csv: row 1 cell 2 (\"0X0\")");
  expect_refused({"--file", "own.csv", "--max-in-flight", "0.1"}, "more than the 0.1 allowed");
  spit(dir / "excel.csv", "\xef\xbb\xbf" + slurp(dir / "own.csv"));
  EXPECT_EQ(report({"--file", "excel.csv"})["ranks"], zbv["ranks"]);
  spit(dir / "ring.csv", "0F0,\a\x1b[31m\n");
  const std::string rung = run({"--file", "ring.csv"}).err;
  EXPECT_THAT(rung, HasSubstr("row 1 cell 2 (\"??[31m\")"));
  expect_refused({"--file", "own.csv", "--stages", "4"}, "--stages 4, but the file has 3");
  expect_refused({"--file", "none.csv"}, "none.csv");
}

TEST_F(ScheduleCliTest, WrongRequestsNameTheWrongOption) {
  const std::vector<std::string> sizes{"--stages", "4", "--microbatches", "8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), sizes.begin(), sizes.end());
    return more;
  };
  expect_refused(with({"--kind", "1f1bb"}), "did you mean \"1f1b\"?");
  expect_refused(sizes, "give --kind or --file");
  expect_refused({"--kind", "1f1b", "--stages", "4"}, "give --stages and --microbatches");
  expect_refused(with({"--kind", "1f1b", "--times", "F=1,Q=2"}), "\"Q=2\"");
  expect_refused(with({"--kind", "1f1b", "--times", "F=-1"}), "\"F=-1\"");
  expect_refused(with({"--kind", "1f1b", "--times", "F=1:2"}), "give 1 or 4");
  expect_refused(with({"--kind", "1f1b", "--max-in-flight", "3"}),
                 "1f1b holds 4 micro-batches in flight on rank 0, more than the 3 allowed");
  expect_refused(with({"--kind", "1f1b", "--format", "png"}), "--format");
  expect_refused(with({"compare", "1f1b,zbw,dualpipe"}), "did you mean \"zbv\"?");
  expect_refused(with({"--kind", "1f1b", "--out", "no/such/folder.svg"}), "no/such/folder.svg");
  expect_refused(with({"--kind", "1f1b", "--times", "F=1,F=2"}), "once each");
  expect_refused(with({"--kind", "1f1b", "--times", "F=1e-320"}), "from 1e-6 to 1e9");
  expect_refused(with({"--kind", "1f1b", "--times", "C=1e15"}), "from 1e-6 to 1e9");
  for (const char* limit : {"nan", "inf", "-1", "4:0:4:4", "4:", "x", ""}) {
    expect_refused(with({"--kind", "1f1b", "--max-in-flight", limit}), "--max-in-flight");
  }
  expect_refused(with({"--kind", "1f1b", "--max-in-flight", "4:4"}),
                 "2 limits for 4 ranks: give one for all or one for each");
  expect_refused(with({"--kind", "auto", "--kept-for-weights", "1.5"}), "--kept-for-weights");
  expect_refused(with({"--kind", "auto", "--kept-for-weights", "nan"}),
                 "nan; it has to be from 0 to 1");
  expect_refused(with({"--kind", "auto", "--objective", "span "}), "--objective");
  expect_refused(with({"--kind", "auto", "--time-limit", "-1"}), "--time-limit");
  expect_refused(with({"compare", "1f1b,,zbv"}), "\"\" is no known schedule");
  expect_refused({"--kind", "1f1b", "--stages", "65536", "--microbatches", "16777216"},
                 "65536 stages × 1 chunks × 16777216 micro-batches = 1099511627776 forwards");
  expect_refused({"--kind", "auto", "--stages", "512", "--microbatches", "100000"}, "forwards");
}

TEST_F(ScheduleCliTest, CompareDrawsKindsUnderEachOtherWithOneTable) {
  // --chunks applies only to the schedules that have a choice of chunks.
  const Outcome three = run({"compare", "1f1b,interleaved_1f1b", "--stages", "3", "--microbatches",
                             "6", "--chunks", "3"});
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_THAT(three.out, HasSubstr("interleaved_1f1b, 3 stages, 6 micro-batches, 3 chunks"));
  const std::vector<std::string> wanted{"compare", "1f1b,zbv,pipedream", "--stages",
                                        "4",       "--microbatches",     "8"};
  const Outcome text = run(wanted);
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"1f1b, 4 stages, 8 micro-batches: bubble 27.27%", "zbv, 4 stages",
                           "versions", "rank 3 |"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  auto as = [&](const char* format) {
    std::vector<std::string> arguments = wanted;
    arguments.insert(arguments.end(), {"--format", format});
    return run(arguments).out;
  };
  const json all = json::parse(as("json"));
  ASSERT_EQ(all["schedules"].size(), 3U);
  EXPECT_EQ(all["schedules"][2]["simulated"]["weight_versions"], json::parse("[4,3,2,1]"));
  EXPECT_THAT(as("svg"), HasSubstr("bubble 27.27%"));
}

TEST_F(ScheduleCliTest, TheLowerBoundIsReportedWithTheFoundSchedule) {
  const std::vector<std::string> wanted{"--kind",          "auto",
                                        "--stages",        "4",
                                        "--microbatches",  "12",
                                        "--chunks",        "1",
                                        "--times",         "F=2,B=2,W=1,C=0",
                                        "--max-in-flight", "4:4:4:4",
                                        "--objective",     "makespan"};
  const json r = report(wanted);
  // The idle time (p-1)(F+B-W) (Qi et al. 2023) is also the least possible.
  EXPECT_DOUBLE_EQ(r["lower_bound"]["makespan"].get<double>(), 12 * 5 + 3 * 3);
  EXPECT_DOUBLE_EQ(r["simulated"]["makespan"].get<double>(), 12 * 5 + 3 * 3);
  EXPECT_EQ(r["lower_bound"]["bubble_ratio"], r["simulated"]["bubble_ratio"]);
  EXPECT_THAT(run(wanted).out,
              HasSubstr("no schedule over these stages is shorter than 69 units,"));
  std::vector<std::string> half = wanted;
  half.insert(half.end(), {"--kept-for-weights", "0.5"});
  const json kept = report(half);
  EXPECT_LE(kept["simulated"]["peak_memory"][0].get<double>(), 4.0);
  EXPECT_LE(kept["simulated"]["makespan"], r["simulated"]["makespan"]);
}

TEST_F(ScheduleCliTest, TheMeasurementIsReportedWithTheSimulation) {
  const std::vector<std::string> wanted{"--kind",         "1f1b", "--stages", "3",
                                        "--microbatches", "4",    "--times",  "F=4,B=4,W=4,C=2",
                                        "--measure"};
  const json r = report(wanted);
  const json &s = r["simulated"], &m = r["measured"];
  EXPECT_EQ(m["peak_in_flight"], s["peak_in_flight"]);
  EXPECT_GT(m["makespan"].get<double>(), s["makespan"].get<double>() - 1);
  EXPECT_LT(m["makespan"].get<double>(), 3 * s["makespan"].get<double>());
  EXPECT_EQ(m["bubble_by_reason"].size(), 3U);
  std::vector<std::string> drawn = wanted;
  drawn.insert(drawn.end(), {"--format", "svg"});
  const std::string svg = run(drawn).out;
  EXPECT_LT(svg.find("predicted bubble"), svg.find("measured bubble"));
  drawn.back() = "chrome";
  const json trace = json::parse(run(drawn).out);
  EXPECT_THAT(trace.dump(), HasSubstr("measured rank 2"));
}

}  // namespace
}  // namespace trident::testing
