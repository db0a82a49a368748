// Tests the guarded device: the host can't access its memory, and its work runs late and in order.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "base/error.h"
#include "core/context.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

class GuardedTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_guarded_device(std::size_t{64} << 20);
  Context context{*device, 2};
  const std::vector<float> values = {1, 2, 3, 4};
  Tensor x = context.from_host<float>({4}, values, Category::activation);

  // Keeps the stream busy, so that later work is not done yet when the test looks.
  void stall() {
    context.stream().enqueue(
        [](const Access&) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
  }
};

using GuardedDeathTest = GuardedTest;

TEST_F(GuardedDeathTest, HostReadsAndWritesFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  context.synchronize();
  volatile float* const address = data<float>(Access{}, x);
  EXPECT_DEATH([[maybe_unused]] const float value = *address, "");
  EXPECT_DEATH(*address = 1.0f, "");
}

TEST_F(GuardedTest, WorkOnTheStreamSeesTheMemory) {
  float seen = 0;
  context.stream().enqueue(
      [&seen, tensor = x](const Access& access) { seen = data<float>(access, tensor)[2]; });
  context.synchronize();
  EXPECT_EQ(seen, 3.0f);
}

TEST_F(GuardedTest, AResultReadWithoutWaitingIsPoison) {
  stall();
  std::vector<float> host(4, 0.0f);
  context.copy_to_host(std::as_writable_bytes(std::span(host)), x);
  for (const float value : host) EXPECT_TRUE(std::isnan(value));
  context.synchronize();
  EXPECT_EQ(host, values);
}

TEST_F(GuardedTest, WorkRunsInOrderAndKeepsItsTensors) {
  stall();
  {
    const Tensor gone = context.from_host<float>({4}, values, Category::activation);
    add(context, gone, x);
  }
  // `other` must not get the memory of `gone` while the work on `gone` waits.
  const Tensor other = context.empty({4}, DType::f32, Category::activation);
  fill(context, other, 100);
  scale(context, x, 10);
  EXPECT_EQ(context.to_host<float>(x), (std::vector<float>{20, 40, 60, 80}));
}

TEST_F(GuardedTest, TheSourceOfACopyMayBeReusedAtOnce) {
  stall();
  std::vector<float> source = {5, 6, 7, 8};
  context.copy_from_host(x, std::as_bytes(std::span(source)));
  std::fill(source.begin(), source.end(), 0.0f);
  EXPECT_EQ(context.to_host<float>(x), (std::vector<float>{5, 6, 7, 8}));
}

TEST_F(GuardedTest, HostWritesComeInTheStreamsOrder) {
  stall();
  scale(context, x, 10);
  context.write_on_host(x.flat(1, 2), [](std::span<std::byte> out) {
    ASSERT_EQ(out.size(), 2 * sizeof(float));
    const float two[] = {7, 8};
    std::memcpy(out.data(), two, sizeof two);
  });
  add(context, x, x);
  EXPECT_EQ(context.to_host<float>(x), (std::vector<float>{20, 14, 16, 80}));
  // The caller gets the reader's error, and the stream continues.
  EXPECT_THROW(
      context.write_on_host(x, [](std::span<std::byte>) { throw RequestError("damaged"); }),
      RequestError);
  fill(context, x, 3);
  EXPECT_EQ(context.to_host<float>(x), (std::vector<float>{3, 3, 3, 3}));
}

TEST_F(GuardedTest, NewMemoryIsPoison) {
  const Tensor fresh = context.empty({1000}, DType::f32, Category::activation);
  for (const float value : context.to_host<float>(fresh)) ASSERT_TRUE(std::isnan(value));
}

TEST_F(GuardedTest, AnErrorOfWorkComesWithSynchronizeAndLaterWorkIsSkipped) {
  bool ran = false;
  context.stream().enqueue([](const Access&) { throw Error("broken"); });
  context.stream().enqueue([&ran](const Access&) { ran = true; });
  EXPECT_THROW(context.synchronize(), Error);
  EXPECT_FALSE(ran);
  context.synchronize();  // the error is reported once
}

TEST_F(GuardedTest, AskingForMoreThanTheDeviceHasIsAnError) {
  EXPECT_THROW(context.empty({std::int64_t{1} << 28}, DType::f32, Category::activation), Error);
}

}  // namespace
}  // namespace trident
