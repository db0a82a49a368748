// Tests GPUs as devices: the errors of a machine without one, staging, events, and memory that runs
// out. They run on an emulated GPU, whose size these tests choose.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/context.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda_device.h"
#include "kernels/elementwise.h"

namespace trident {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t MiB = std::size_t{1} << 20;

class CudaDevice : public testing::Test {
 protected:
  ~CudaDevice() override { emulation::set_machine(1, std::size_t{8} << 30); }

  // Enqueues work of the host in a queue's order.
  static void enqueue(Context& context, const std::function<void()>& work) {
    context.stream().enqueue([&](const Access& access) {
      ASSERT_EQ(emulation::enqueue(cuda::queue_of(access).stream, work), cudaSuccess);
    });
  }
  static std::vector<float> numbers(std::size_t n, float first) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
};

TEST_F(CudaDevice, WithoutADriverThereIsNoneAndTheErrorNamesTheReason) {
  emulation::set_machine(-1, 0);
  EXPECT_EQ(find_gpus().count, 0);
  EXPECT_EQ(find_gpus().reason, "this machine has no NVIDIA driver");
  try {
    make_cuda_device(0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("this machine has no NVIDIA driver"));
  }
  emulation::set_machine(0, 0);
  EXPECT_EQ(find_gpus().reason, "the NVIDIA driver reports no GPU");
}

TEST_F(CudaDevice, AnOrdinalThatIsNotThereIsRefused) {
  emulation::set_machine(2, 64 * MiB);
  EXPECT_EQ(find_gpus().count, 2);
  EXPECT_NO_THROW(make_cuda_device(1));
  try {
    make_cuda_device(2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("this machine has 2 GPUs"));
  }
}

// Uploads several times the size of the staging memory, while the queue is blocked for a part of
// that time. The sources may be reused at once.
TEST_F(CudaDevice, UploadsMayReuseTheirSourceAndPassTheRing) {
  const auto device = make_cuda_device(0);
  Context context(*device, 1);
  std::vector<Tensor> tensors;
  std::vector<float> source;
  std::atomic<bool> go{false};
  enqueue(context, [&] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    go = true;
  });
  const std::vector<std::size_t> sizes{1, 3, 1000, 300'000, 700'000, 5, 1'500'000, 2, 900'000, 7};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    source = numbers(sizes[i], static_cast<float>(i));
    tensors.push_back(context.from_host<float>({static_cast<std::int64_t>(sizes[i])}, source,
                                               Category::activation));
    std::fill(source.begin(), source.end(), -1.0f);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(context.to_host<float>(tensors[i]), numbers(sizes[i], static_cast<float>(i))) << i;
  }
  later.join();
}

TEST_F(CudaDevice, DownloadsOfAnySizeAreThereAfterSynchronize) {
  const auto device = make_cuda_device(0);
  Context context(*device, 1);
  const std::vector<std::size_t> sizes{2, 800'000, 1, 600'000, 2'000'000, 3};
  std::vector<std::vector<float>> found;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    tensors.push_back(context.from_host<float>({static_cast<std::int64_t>(sizes[i])},
                                               numbers(sizes[i], static_cast<float>(i)),
                                               Category::activation));
    found.emplace_back(sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    context.copy_to_host(std::as_writable_bytes(std::span(found[i])), tensors[i]);
    fill(context, tensors[i], 0);  // after the copy, in the queue's order
  }
  context.synchronize();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(found[i], numbers(sizes[i], static_cast<float>(i))) << i;
  }
}

TEST_F(CudaDevice, AnEventOrdersTwoQueuesAndIsSeenByTheHost) {
  const auto device = make_cuda_device(0);
  Context first(*device, 1), second(*device, 1);
  const auto event = device->make_event();
  EXPECT_TRUE(event->reached());  // before any record
  std::atomic<bool> go{false}, done{false};
  enqueue(first, [&] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done = true;
  });
  first.stream().enqueue([&](const Access& access) { event->record(access); });
  bool seen = false;
  second.stream().enqueue([&](const Access& access) { event->wait(access); });
  enqueue(second, [&] { seen = done; });
  EXPECT_FALSE(event->reached());
  go = true;
  event->synchronize();
  EXPECT_TRUE(event->reached());
  EXPECT_TRUE(done);
  second.synchronize();
  EXPECT_TRUE(seen);
}

TEST_F(CudaDevice, ClocksOfMarksGoForward) {
  const auto device = make_cuda_device(0);
  Context context(*device, 1);
  ClockReading begin, end;
  context.mark(begin);
  enqueue(context, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  context.mark(end);
  context.synchronize();
  EXPECT_GE(end.wall_ns - begin.wall_ns, 15'000'000);
  EXPECT_EQ(end.wall_ns, end.cpu_ns);
}

TEST_F(CudaDevice, FreeSegmentsAreDroppedBeforeMemoryRunsOut) {
  emulation::set_machine(1, 64 * MiB);
  const auto device = make_cuda_device(0);
  Context context(*device, 1);
  const auto take = [&](std::int64_t mib) {
    return context.empty({mib << 20}, DType::u8, Category::activation);
  };
  { const Tensor a = take(20), b = take(20); }
  const std::size_t before = emulation::allocations();
  { const Tensor again = take(20); }
  EXPECT_EQ(emulation::allocations(), before);  // reuses a kept segment
  const Tensor large = take(50);                // only after the kept segments are freed
  EXPECT_THAT(large.bytes(), 50 * static_cast<std::int64_t>(MiB));
  try {
    take(30);
    ADD_FAILURE();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("cuda:0: no memory for an allocation of"),
                      HasSubstr("this rank holds"), HasSubstr("activation 52428800")));
  }
  EXPECT_NO_THROW(take(8));  // works after the error
}

TEST_F(CudaDevice, MemoryGoesBackWithTheContext) {
  const std::size_t before = emulation::allocated_bytes();
  {
    const auto device = make_cuda_device(0);
    Context context(*device, 1);
    const Tensor x =
        context.from_host<float>({3}, std::vector<float>{1, 2, 3}, Category::activation);
    EXPECT_GT(emulation::allocated_bytes(), before);
  }
  EXPECT_EQ(emulation::allocated_bytes(), before);
}

}  // namespace
}  // namespace trident
