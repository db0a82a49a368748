#include "core/core_contention.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "core/thread_team.h"

namespace trident {
namespace {

using std::chrono::milliseconds;

TEST(ContentionDetector, FindsContentionAfterThreeBusyIntervalsUntilTenAreCalm) {
  ContentionDetector rule;
  for (int i = 0; i < 2; ++i) rule.add(milliseconds(100), milliseconds(90));
  rule.add(milliseconds(100), milliseconds(10));  // a tenth: busy intervals count anew
  for (int i = 0; i < 2; ++i) rule.add(milliseconds(100), milliseconds(11));
  EXPECT_FALSE(rule.found());
  rule.add(milliseconds(100), milliseconds(11));
  EXPECT_TRUE(rule.found());
  for (int i = 0; i < 9; ++i) rule.add(milliseconds(100), milliseconds(1));
  rule.add(milliseconds(100), milliseconds(2));  // a fiftieth: calm intervals count anew
  for (int i = 0; i < 9; ++i) rule.add(milliseconds(100), milliseconds(1));
  EXPECT_TRUE(rule.found());
  rule.add(milliseconds(100), milliseconds(1));
  EXPECT_FALSE(rule.found());
  rule.add(milliseconds(100), milliseconds(90));
  EXPECT_FALSE(rule.found());
}

// Binds this thread, and the threads that it starts, to one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    int core = 0;
    while (CPU_ISSET(core, &before_) == 0) ++core;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

// A thread that keeps the core busy all the time.
class Competitor {
 public:
  ~Competitor() {
    over_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_{[this] {
    while (!over_.load()) {
    }
  }};
};

template <class Done>
bool within_a_minute(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
  }
  return false;
}

TEST(CoreContention, IsFoundWhereAnotherThreadTakesTheCore) {
  const OneCore bound;
  const Competitor competitor;
  CoreContention contention;
  EXPECT_TRUE(within_a_minute([&] { return contention.wanted(); }));
}

// Each of these threads has lost more time than the one before it when it first calls look().
TEST(CoreContention, TimeThatAnotherThreadHasLostIsNotItsSuccessors) {
  CoreContention contention;
  for (int i = 1; i <= 5; ++i) {
    std::thread([&] {
      const OneCore bound;
      const Competitor competitor;
      const auto before = time_without_core();
      ASSERT_TRUE(before.has_value());
      EXPECT_TRUE(
          within_a_minute([&] { return *time_without_core() > *before + milliseconds(20 * i); }));
      contention.look(0);
      contention.conclude();
    }).join();
  }
  EXPECT_FALSE(contention.found());
}

#if !defined(__SANITIZE_THREAD__)
// The test checks only that the extra team exists. Its purpose, that libgomp's threads sleep, is up
// to libgomp.
TEST(ThreadTeam, HasAnExtraTeamWhileItsCoresAreWanted) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::thread([&] {
    const OneCore bound;
    ThreadTeam team(2);
    team.run(2, [](int) {});
    const auto alone = threads();
    const Competitor competitor;
    EXPECT_TRUE(within_a_minute([&] {
      team.run(2, [](int) {});
      return threads() > alone + 1;
    }));
  }).join();
}
#endif

}  // namespace
}  // namespace trident
