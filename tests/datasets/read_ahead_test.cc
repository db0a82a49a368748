#include "datasets/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace trident {
namespace {

using ::testing::ElementsAre;

TEST(ReadAhead, ReadsTheNextIterationConcurrently) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::int64_t> read;
  ReadAhead ahead([&](std::int64_t k, std::int64_t count) {
    const std::lock_guard lock(mutex);
    read.push_back(k);
    changed.notify_all();
    if (k == 5) throw RequestError("token of iteration 5");
    return std::vector<HostMicroBatch>(static_cast<std::size_t>(count),
                                       HostMicroBatch{.sample_ids = {k}});
  });
  EXPECT_EQ(ahead.take(3, 1, 1).at(0).sample_ids.at(0), 3);
  {
    std::unique_lock lock(mutex);  // 4 is not taken yet
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return read.size() == 2; }));
  }
  EXPECT_EQ(ahead.take(4, 1, 1).at(0).sample_ids.at(0), 4);
  EXPECT_THROW(ahead.take(5, 1, 1), RequestError) << "for the iteration that it was for";
  EXPECT_EQ(ahead.take(7, 1, 0).at(0).sample_ids.at(0), 7);
  EXPECT_THAT(read, ElementsAre(3, 4, 5, 7)) << "nothing twice, nothing beyond the end";
}

}  // namespace
}  // namespace trident
