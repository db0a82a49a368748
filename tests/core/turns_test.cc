#include "core/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace trident::testing {
namespace {

using ::testing::ElementsAre;

TEST(Turns, TheOtherRunsWhereOneGivesWay) {
  Turns turns;
  std::vector<std::string> log;
  const auto piece = [&](const std::string& name, int steps) {
    return [&log, &turns, name, steps] {
      for (int i = 0; i < steps; ++i) {
        log.push_back(name + std::to_string(i));
        turns.give_way();
      }
    };
  };
  EXPECT_FALSE(turns.shares());
  turns.give_way();  // alone: nothing happens
  turns.run(piece("a", 2), piece("b", 4));
  EXPECT_THAT(log, ElementsAre("a0", "b0", "a1", "b1", "b2", "b3"));
  log.clear();
  turns.run(piece("a", 3), piece("b", 1));
  EXPECT_THAT(log, ElementsAre("a0", "b0", "a1", "a2"));
  log.clear();
  turns.run([&] { log.emplace_back("a"); }, piece("b", 1));
  EXPECT_THAT(log, ElementsAre("a", "b0"));
}

TEST(Turns, SharesUntilTheOtherHasEnded) {
  Turns turns;
  std::vector<bool> shares;
  turns.run(
      [&] {
        shares.push_back(turns.shares());
        turns.give_way();
        shares.push_back(turns.shares());
      },
      [&] { shares.push_back(turns.shares()); });
  EXPECT_THAT(shares, ElementsAre(true, true, false));
}

// Both stacks are unwound, so that their objects are freed.
TEST(Turns, AnErrorOfOneUnwindsTheOther) {
  for (const bool first_throws : {true, false}) {
    Turns turns;
    const auto held = std::make_shared<int>(1);
    const auto throws = [&, copy = held] {
      const auto local = copy;
      turns.give_way();
      throw std::runtime_error("broken");
    };
    const auto waits = [&, copy = held] {
      const auto local = copy;
      for (;;) turns.give_way();
    };
    const std::function<void()> one = throws, other = waits;
    EXPECT_THROW(turns.run(first_throws ? one : other, first_throws ? other : one),
                 std::runtime_error);
    EXPECT_EQ(held.use_count(), 5);  // this one, two lambdas and their two copies in `one`, `other`
    bool again = false;
    turns.run([] {}, [&] { again = true; });
    EXPECT_TRUE(again);
  }
}

TEST(Turns, AnErrorBeforeTheFirstTurnLeavesTheOtherOut) {
  Turns turns;
  bool ran = false;
  EXPECT_THROW(turns.run([] { throw std::runtime_error("broken"); }, [&] { ran = true; }),
               std::runtime_error);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace trident::testing
