// Tests how NCCL's faults are reported, on an emulated NCCL that injects them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "core/context.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/nccl/nccl.h"
#include "parallel/transport/transport.h"
#include "support/abort_on_unwind.h"

namespace trident {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class NcclFaults : public testing::Test {
 protected:
  ~NcclFaults() override { emulation::set_nccl_fault(emulation::NcclFault::none); }

  // The error of two ranks; rank r is on GPU gpus[r].
  static std::string error_of(const std::function<void(Context&, const ProcessGroup&)>& body,
                              std::vector<int> gpus = {0, 1},
                              milliseconds timeout = milliseconds(60'000)) {
    TransportOptions options;
    options.timeout = timeout;
    options.library = &nccl_library;
    const auto start = std::chrono::steady_clock::now();
    std::string text = "no error";
    try {
      run_local(static_cast<int>(gpus.size()), options, [&](Transport& transport) {
        const ProcessGroup world = transport.world();
        const auto device = make_cuda_device(gpus[static_cast<std::size_t>(world.rank())]);
        Context context(*device, 1);
        const AbortOnUnwind guard(transport);
        body(context, world);
        context.synchronize();
        world.barrier(context);
        context.synchronize();
      });
    } catch (const CommunicationError& e) {
      text = e.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(emulation::nccl_communicators(), 0);
    return text;
  }
  static Tensor tensor(Context& context) {
    return context.empty({1024}, DType::f32, Category::workspace);
  }
};

TEST_F(NcclFaults, NoneIsNoErrorAndLeavesNoCommunicator) {
  EXPECT_EQ(error_of([](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c)); }),
            "no error");
}

TEST_F(NcclFaults, ACommunicatorThatNeverOpensIsLate) {
  emulation::set_nccl_fault(emulation::NcclFault::opening_never_ends);
  EXPECT_THAT(error_of([](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c)); },
                       {0, 1}, milliseconds(1000)),
              HasSubstr("nccl: group 'world': a communicator did not end in 1000 ms"));
}

TEST_F(NcclFaults, MessagesAfterOneThatOpensNoLinkFailAsWell) {
  emulation::set_nccl_fault(emulation::NcclFault::opening_never_ends);
  EXPECT_THAT(error_of(
                  [](Context& c, const ProcessGroup& g) {
                    const Tensor x = tensor(c);
                    std::vector<Work> all;
                    for (int i = 0; i < 3; ++i) {
                      all.push_back(g.rank() == 0 ? g.send(c, x, 1, Async::yes)
                                                  : g.receive(c, x, 0, Async::yes));
                    }
                    // The last messages wait first, on a link that is not open.
                    std::this_thread::sleep_for(milliseconds(1500));
                    for (auto work = all.rbegin(); work != all.rend(); ++work) work->wait(c);
                  },
                  {0, 1}, milliseconds(1000)),
              AnyOf(HasSubstr("nccl: group 'world': a communicator did not end in 1000 ms"),
                    HasSubstr("group 'world': a link did not open")));
}

TEST_F(NcclFaults, ASplitThatNeverEndsIsLateAndLeavesNoCommunicator) {
  EXPECT_THAT(error_of(
                  [](Context& c, const ProcessGroup& g) {
                    const int all[] = {0, 1};
                    const ProcessGroup group = g.subgroup(all, "all");
                    g.all_reduce(c, tensor(c));  // opens the world's communicator
                    if (g.rank() == 0) g.connect(c, std::span(&group, 1));
                    std::this_thread::sleep_for(milliseconds(1500));
                  },
                  {0, 1}, milliseconds(1000)),
              HasSubstr("nccl: group 'world': a communicator did not end in 1000 ms"));
}

TEST_F(NcclFaults, TwoRanksOnAGpuGetTheErrorOfNccl) {
  EXPECT_THAT(
      error_of([](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c)); }, {1, 1}),
      AllOf(HasSubstr("nccl: group 'world': a communicator: "),
            HasSubstr("Duplicate GPU detected")));
}

// The hosts agree on an operation, but the device of one rank never reaches it.
TEST_F(NcclFaults, AStalledQueueIsLateAndIsFreed) {
  EXPECT_THAT(error_of(
                  [](Context& c, const ProcessGroup& g) {
                    const Tensor x = tensor(c);
                    g.all_reduce(c, x);
                    c.synchronize();
                    if (g.rank() == 1) {
                      c.stream().enqueue([](const Access& access) {
                        emulation::enqueue(cuda::queue_of(access).stream,
                                           [] { std::this_thread::sleep_for(milliseconds(3000)); });
                      });
                    }
                    g.all_reduce(c, x);
                  },
                  {0, 1}, milliseconds(1000)),
              HasSubstr("nccl: group 'world': messages did not end in 1000 ms"));
}

TEST_F(NcclFaults, AnErrorBetweenOperationsEndsAllRanks) {
  EXPECT_THAT(error_of(
                  [](Context& c, const ProcessGroup& g) {
                    const Tensor x = tensor(c);
                    g.all_reduce(c, x);
                    c.synchronize();
                    g.barrier(c);
                    if (g.rank() == 0) emulation::set_nccl_fault(emulation::NcclFault::network);
                    // No NCCL call is running, so the watch has to find the error.
                    while (true) {
                      std::this_thread::sleep_for(milliseconds(10));
                      g.barrier(c);
                      c.synchronize();
                    }
                  },
                  {0, 1}),
              HasSubstr("nccl: group 'world': an operation: emulated NCCL error"));
}

// All groups of a topology use one root; their communicators are split from the world's.
TEST_F(NcclFaults, ConnectedGroupsAreSplitFromTheWorld) {
  const int ids = emulation::nccl_unique_ids(), splits = emulation::nccl_splits();
  EXPECT_EQ(error_of(
                [](Context& c, const ProcessGroup& g) {
                  const int row[] = {g.rank() / 2 * 2, g.rank() / 2 * 2 + 1};
                  const int column[] = {g.rank() % 2, g.rank() % 2 + 2};
                  const int ends[] = {0, 3};
                  const ProcessGroup groups[] = {
                      g.subgroup(row, "row"), g.subgroup(column, "column"),
                      g.rank() % 3 == 0 ? g.subgroup(ends, "ends") : ProcessGroup()};
                  g.connect(c, groups);
                  for (const ProcessGroup& group : groups) {
                    if (group.defined()) group.all_reduce(c, tensor(c));
                  }
                },
                {0, 1, 2, 3}),
            "no error");
  EXPECT_EQ(emulation::nccl_unique_ids() - ids, 1);
  EXPECT_EQ(emulation::nccl_splits() - splits, 3);
}

// A waiting NCCL kernel would block calls that synchronize the device, such as freeing memory.
TEST_F(NcclFaults, AMessageWithoutItsReceiverBlocksNoQueue) {
  EXPECT_EQ(error_of(
                [](Context& c, const ProcessGroup& g) {
                  const Tensor x = tensor(c);
                  const auto pass = [&](Async async) {
                    return g.rank() == 0 ? g.send(c, x, 1, async) : g.receive(c, x, 0, async);
                  };
                  pass(Async::no);  // opens the link
                  Work sent;
                  if (g.rank() == 0) sent = pass(Async::yes);
                  std::this_thread::sleep_for(milliseconds(100));
                  void* memory = nullptr;
                  cudaMalloc(&memory, 64);
                  cudaFree(memory);
                  g.barrier(c);
                  if (g.rank() == 1) sent = pass(Async::yes);
                  sent.wait(c);
                },
                {0, 1}, milliseconds(5000)),
            "no error");
}

}  // namespace
}  // namespace trident
