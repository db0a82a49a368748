#include "base/process/background.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace trident {
namespace {

TEST(BackgroundTasks, RunInOrderAndTheLastOnesBeforeTheEnd) {
  std::vector<int> ran;
  {
    BackgroundTasks tasks(1000);
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(tasks.post([&ran, i] { ran.push_back(i); }));
    }
    tasks.drain();
    EXPECT_EQ(ran.size(), 100U);
    tasks.post([&ran] { ran.push_back(100); });
  }
  ASSERT_EQ(ran.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(BackgroundTasks, PostingNeverWaitsAndTooManyTasksAreDropped) {
  std::promise<void> open;
  int ran = 0;
  BackgroundTasks tasks(3);
  std::promise<void> runs;
  tasks.post([&] {
    runs.set_value();
    open.get_future().wait();
  });
  runs.get_future().wait();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(tasks.post([&ran] { ++ran; }));
  EXPECT_FALSE(tasks.post([&ran] { ++ran; }));
  open.set_value();
  tasks.drain();
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace trident
