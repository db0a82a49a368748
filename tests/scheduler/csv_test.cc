#include "scheduler/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "scheduler/schedules.h"
#include "scheduler/validate.h"
#include "tests/scheduler/sizes.h"

namespace trident {
namespace {

using testing::HasSubstr;

std::string problems(const std::string& text) {
  try {
    validate(from_csv(text, "own"));
  } catch (const RequestError& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, EveryScheduleComesBackAsItWas) {
  for (const ScheduleRequest& request : small_requests()) {
    const Schedule schedule = make_schedule(request);
    const Schedule back = from_csv(to_csv(schedule), request.kind);
    SCOPED_TRACE(to_csv(schedule));
    EXPECT_EQ(back.stages, schedule.stages);
    EXPECT_EQ(back.microbatches, schedule.microbatches);
    EXPECT_EQ(back.chunks, schedule.chunks);
    EXPECT_EQ(back.placement, schedule.placement);
    EXPECT_TRUE(back.ranks == schedule.ranks);
  }
}

TEST(Csv, ReadsTheFilesThatPyTorchWrites) {
  // The file has idle steps, quotes, carriage returns, and rows of different lengths.
  const Schedule s = from_csv("0F0,0F1,,0B0,,0B1\r\n,\"1F0\",1B0, 1F1 ,1B1\r\n\r\n", "own");
  EXPECT_EQ(s.stages, 2);
  EXPECT_EQ(s.microbatches, 2);
  EXPECT_EQ(to_csv(s), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(problems(to_csv(s)), "");
}

TEST(Csv, AMalformedFileIsRefusedWithRowCellAndReason) {
  EXPECT_THAT(problems("0F0,0X0\n"), HasSubstr("row 1 cell 2 (\"0X0\"): a cell is <stage>"));
  EXPECT_THAT(problems("0F0,0B0\n1F0,-1B0\n"), HasSubstr("row 2 cell 2 (\"-1B0\")"));
  EXPECT_THAT(problems("0F0,0B99999999999\n"), HasSubstr("row 1 cell 2"));
  EXPECT_THAT(problems("(0F0;1B0)OVERLAP\n"), HasSubstr("row 1 cell 1"));
  EXPECT_THAT(problems("(0F0)OVERLAP_F_B\n"), HasSubstr("row 1 cell 1"));
  EXPECT_THAT(problems("(0F0;0B0)OVERLAP_F_B\n"), HasSubstr("a pair is a forward and"));
  EXPECT_THAT(problems("0F0,0B0,0SEND_F0\n"), HasSubstr("row 1 cell 3 (\"0SEND_F0\")"));
  EXPECT_THAT(problems("0F0,0B0\n\n1F0,1B0\n"), HasSubstr("row 2: no action"));
  EXPECT_THAT(problems("0F0,0B0,2F0,2B0\n1F0,1B0\n"), HasSubstr("row 2: actions of 1 stages"));
  EXPECT_THAT(problems("0F0,0B0\n7F0,7B0\n"), HasSubstr("rank 1 holds stage 7, outside [0, 2)"));
  EXPECT_THAT(problems("0F0,0B0,0F1000000\n"), HasSubstr("can't cover"));
  EXPECT_THAT(problems("0F0,0F1,0B0\n"), HasSubstr("never runs a backward"));
  EXPECT_THAT(problems(""), HasSubstr("row 1: no action"));
}

TEST(Csv, GarbageIsRefusedWithFewWords) {
  std::string garbage;
  for (int i = 0; garbage.size() < 500'000; ++i) garbage += static_cast<char>(i * 7919 % 251);
  EXPECT_THAT(problems(garbage), HasSubstr("row 1 cell 1"));
  EXPECT_LT(problems(garbage).size(), 10'000U);
  EXPECT_THAT(problems(std::string(500'000, ',')), HasSubstr("row 1: no action"));
  EXPECT_THAT(problems(std::string(500'000, '\n')), HasSubstr("row 1: no action"));
}

}  // namespace
}  // namespace trident
