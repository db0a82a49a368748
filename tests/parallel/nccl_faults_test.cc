// What NCCL's own faults become, on an emulated NCCL that has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "core/context.h"
#include "core/error.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda_device.h"
#include "parallel/transport/transport.h"

namespace trident {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class NcclFaults : public testing::Test {
 protected:
  ~NcclFaults() override { emulation::set_nccl_fault(emulation::NcclFault::none); }

  // Of two ranks; rank r on GPU gpus[r].
  static std::string error_of(const std::function<void(Context&, const ProcessGroup&)>& body,
                              std::vector<int> gpus = {0, 1},
                              milliseconds timeout = milliseconds(60'000)) {
    TransportOptions options;
    options.timeout = timeout;
    options.nccl = true;
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

TEST_F(NcclFaults, TwoRanksOnAGpuAreToldWhatNcclSays) {
  EXPECT_THAT(
      error_of([](Context& c, const ProcessGroup& g) { g.all_reduce(c, tensor(c)); }, {1, 1}),
      AllOf(HasSubstr("nccl: group 'world': a communicator: "),
            HasSubstr("Duplicate GPU detected")));
}

// The hosts agree on an operation, the device of one never comes to it.
TEST_F(NcclFaults, AQueueThatStandsStillIsLateAndIsFreed) {
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
                    // No call of NCCL's is under way: the watch finds it.
                    while (true) {
                      std::this_thread::sleep_for(milliseconds(10));
                      g.barrier(c);
                      c.synchronize();
                    }
                  },
                  {0, 1}),
              HasSubstr("nccl: group 'world': an operation: emulated NCCL error"));
}

}  // namespace
}  // namespace trident
