#include "report/best_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_dir.h"

namespace trident::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BestRates, AreNamedByMachineThreadsAndType) {
  EXPECT_EQ(name_of(MachineKind{"AMD EPYC", "avx2", 2, "fp32"}), "AMD EPYC, avx2, 2 threads, fp32");
  EXPECT_EQ(name_of(MachineKind{"Xeon", "avx512 bf16", 1, "bf16", "widened"}),
            "Xeon, avx512 bf16, 1 thread, bf16 widened");
  EXPECT_EQ(name_of(MachineKind{"NVIDIA H100", "", 0, "fp32", "tf32"}), "NVIDIA H100, fp32 tf32");
}

TEST(BestRates, OfAJobAreThoseOfAllItsMachines) {
  JobRate rate{{{"a", 2}, {"b", 1}}, {{"a", 100}, {"b", 50}, {"c", 1e6}}};
  EXPECT_EQ(rate.total(), 250);
  EXPECT_FALSE(rate.reached(250));
  // A rate that a step reached is one that its machines can do.
  EXPECT_TRUE(rate.reached(500));
  EXPECT_DOUBLE_EQ(rate.total(), 500);
  EXPECT_EQ(rate.best.at("c"), 1e6);
  EXPECT_EQ((JobRate{{{"a", 1}, {"d", 1}}, {{"a", 100}}}.total()), 0);  // d is unknown
  EXPECT_EQ(JobRate{}.total(), 0);
}

TEST(BestRates, AMachineIsBusyWhereItsMedianIsMoreThan15PercentBelow) {
  EXPECT_EQ(busy_text("x", {.best = 100, .median = 86}, 100), "");
  EXPECT_EQ(busy_text("x", {.best = 100, .median = 100}, 0), "");
  EXPECT_THAT(busy_text("x", {.best = 100, .median = 84}, 100e9), HasSubstr("busy machine"));
  EXPECT_THAT(busy_text("x", {.best = 60e9, .median = 50e9}, 100e9),
              HasSubstr("at 50% of its best known rate (100 GFLOP/s; x)"));
  EXPECT_THAT(busy_text("x", {.best = 60e9, .median = 50e9}, 1e20, "rates.json"),
              AllOf(HasSubstr("(1e+11 GFLOP/s; x; kept in rates.json)"),
                    HasSubstr("busy machine, or a wrong rate kept: "),
                    HasSubstr("so times or MFU of this run are unreliable")));
  EXPECT_THAT(busy_text("x", {.best = 60e9, .median = 50e9}, 100e9, "rates.json"),
              HasSubstr("busy machine: "));
}

TEST(BestRates, AreKeptFromRunToRun) {
  const TempDir dir;
  const std::string file = dir / "cache/trident/product_rates.json";
  EXPECT_TRUE(read_best_rates(file).empty());
  keep_best_rates(file, {{"a", 3e11}, {"b", 1e9}});
  keep_best_rates(file, {{"a", 2e11}, {"b", 2e9}, {"nonsense", -1}});
  EXPECT_EQ(read_best_rates(file), (BestRates{{"a", 3e11}, {"b", 2e9}}));
}

TEST(BestRates, ADamagedOrForbiddenFileIsNoError) {
  const TempDir dir;
  for (const char* text : {"", "{", "[1]", "null", "{\"a\": \"x\", \"b\": 1e300, \"c\": -1}"}) {
    spit(dir / "rates.json", text);
    EXPECT_TRUE(read_best_rates(dir / "rates.json").empty()) << text;
    keep_best_rates(dir / "rates.json", {{"a", 1}});
    EXPECT_EQ(read_best_rates(dir / "rates.json"), (BestRates{{"a", 1}})) << text;
  }
  spit(dir / "file", "");
  keep_best_rates(dir / "file/rates.json", {{"a", 1}});  // its folder can't be made
  keep_best_rates(dir.path(), {{"a", 1}});               // this path is a folder
  EXPECT_TRUE(read_best_rates(dir.path()).empty());
  keep_best_rates("/proc/trident/rates.json", {{"a", 1}});
  keep_best_rates("", {{"a", 1}});
}

TEST(BestRates, SeveralRunsWriteCompleteFiles) {
  const TempDir dir;
  const std::string file = dir / "rates.json";
  keep_best_rates(file, {{"a", 1}});
  std::vector<std::thread> runs;
  for (int run = 0; run < 4; ++run) {
    runs.emplace_back([&, run] {
      for (int i = 0; i < 20; ++i) {
        keep_best_rates(file, {{"run " + std::to_string(run), 10.0 * i + 1}});
        EXPECT_TRUE(read_best_rates(file).contains("a"));
      }
    });
  }
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(read_best_rates(file).at("a"), 1);
}

}  // namespace
}  // namespace trident::testing
