#include "core/countdown.h"

#include <gtest/gtest.h>

#include <thread>

namespace trident {
namespace {

using std::chrono::milliseconds;

TEST(Countdown, AGapBetweenTwoChecksCountsForAPartOnly) {
  Countdown countdown(milliseconds(80));
  std::this_thread::sleep_for(milliseconds(300));  // as if the process had been stopped
  EXPECT_FALSE(countdown.over());
}

TEST(Countdown, EndsAfterItsLimitIfItIsCheckedRegularly) {
  const auto begin = Countdown::Clock::now();
  Countdown countdown(milliseconds(80));
  while (!countdown.over()) std::this_thread::sleep_until(countdown.next_look());
  EXPECT_GE(Countdown::Clock::now() - begin, milliseconds(80));
}

TEST(Countdown, ProgressGivesTheFullLimitAgain) {
  Countdown countdown(milliseconds(50));
  while (!countdown.over()) std::this_thread::sleep_until(countdown.next_look());
  countdown.restart();
  EXPECT_FALSE(countdown.over());
}

TEST(Countdown, AnExcuseGivesTheFullLimitAgain) {
  int excuses = 2;
  const auto begin = Countdown::Clock::now();
  Countdown countdown(milliseconds(50), [&] { return excuses-- > 0; });
  while (!countdown.over()) std::this_thread::sleep_until(countdown.next_look());
  EXPECT_GE(Countdown::Clock::now() - begin, milliseconds(150));
  EXPECT_EQ(excuses, -1);
}

TEST(Countdown, WithoutALimitItIsNeverOver) {
  Countdown countdown;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(countdown.over());
    EXPECT_GT(countdown.next_look(), Countdown::Clock::now());
  }
}

}  // namespace
}  // namespace trident
