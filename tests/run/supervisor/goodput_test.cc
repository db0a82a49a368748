#include "run/supervisor/goodput.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

class GoodputTest : public ::testing::Test {
 protected:
  // Appends iterations `first` to `last`, of a second each.
  void append(int first, int last) const {
    std::ofstream file(path_, std::ios::app);
    for (int k = first; k <= last; ++k) {
      file << fmt::format("{{\"iteration\": {}, \"iteration_time_ms\": 1000}}\n", k);
    }
  }
  const TempDir dir_;
  const std::string path_ = dir_ / "metrics.jsonl";
};

TEST_F(GoodputTest, CountsTheIterationsThatAStartHasAdded) {
  append(1, 3);
  GoodputCounter time(path_);
  time.started();
  append(4, 9);
  time.ended(10);
  EXPECT_EQ(time.now().iterations, 6);
  EXPECT_EQ(time.now().training, 6);
  EXPECT_EQ(time.now().starting, 4);
  EXPECT_EQ(time.iteration(), 9);
}

TEST_F(GoodputTest, ARefusedStartCountsNoIterationsOfAnotherRun) {
  append(1, 3);
  GoodputCounter time(path_);
  time.started();
  append(4, 9);
  time.refused(2);
  EXPECT_EQ(time.now().starts, 1);
  EXPECT_EQ(time.now().iterations, 0);
  EXPECT_EQ(time.now().training, 0);
  EXPECT_EQ(time.now().starting, 2);
  EXPECT_EQ(time.now().seconds(), 2);
}

}  // namespace
}  // namespace trident::testing
