// The conformance suite on `local`: 1 to 8 ranks on the CPU device, some on the guarded one, and on
// a GPU if the machine has one.
#include <gtest/gtest.h>

#include "core/context.h"
#include "core/device.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives_conformance.h"
#include "parallel/transport/local_world.h"
#include "parallel/transport/nccl/nccl.h"
#include "support/devices.h"

namespace trident::test {
namespace {

World local_world(const std::string& name, int ranks, std::unique_ptr<Device> (*make)()) {
  return {name + std::to_string(ranks), [ranks, make](const auto& options, const auto& body) {
            const auto device = make();
            run_local(ranks, options, [&](Transport& transport) { body(transport, *device); });
          }};
}

// A world over NCCL, with a GPU for each rank.
World nccl_world(int ranks) {
  return {"Nccl" + std::to_string(ranks), [ranks](TransportOptions options, const auto& body) {
            std::vector<std::unique_ptr<Device>> devices;
            for (int r = 0; r < ranks; ++r) devices.push_back(make_cuda_device(r));
            options.library = &nccl_library;
            run_local(ranks, options, [&](Transport& transport) {
              body(transport, *devices[static_cast<std::size_t>(transport.world().rank())]);
            });
          }};
}

// A group of one normally needs no communicator. Here it makes one, so that a machine with one GPU
// runs NCCL's calls.
class NcclAlone : public testing::TestWithParam<int> {};

TEST_P(NcclAlone, CallsGiveARanksOwnValues) {
  const auto device = make_cuda_device(GetParam());
  Context context(*device, 1);
  const auto nccl =
      make_nccl(local::make_endpoint(std::make_shared<local::World>(1, TransportOptions{}), 0));
  const auto messages = nccl->open(nccl->make_key(), "messages", 1, 0, *device, Carries::messages);
  const auto alone = messages->split(0, 0, "alone");
  EXPECT_EQ(messages->split(-1, 0, "none"), nullptr);
  const std::vector<float> values{1, 2, 3};
  const Tensor x = context.from_host<float>({3}, values, Category::communication);
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) {
    results.push_back(context.empty({3}, DType::f32, Category::communication));
  }
  context.stream().enqueue([&](const Access& access) {
    const auto at = [&](const Tensor& tensor) {
      return static_cast<void*>(TensorAddress::of(access, tensor));
    };
    alone->all_reduce(access, at(x), 3, DType::f32, ReduceOp::average);
    alone->reduce_scatter(access, at(x), at(results[0]), 3, DType::f32, ReduceOp::sum);
    alone->all_gather(access, at(results[0]), at(results[1]), 12);
    alone->broadcast(access, at(results[1]), 12, 0);
    const Communicator::Part sent{0, at(results[1]), 12}, taken{0, at(results[2]), 12};
    messages->exchange(access, std::span(&sent, 1), std::span(&taken, 1));
  });
  EXPECT_EQ(context.to_host<float>(x), values);
  for (const Tensor& result : results) EXPECT_EQ(context.to_host<float>(result), values);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NcclAlone);
INSTANTIATE_TEST_SUITE_P(Gpus, NcclAlone, testing::Range(0, find_gpus().count));

}  // namespace

std::vector<World> worlds() {
  std::vector<World> all;
  for (int ranks = 1; ranks <= 8; ++ranks)
    all.push_back(local_world("Cpu", ranks, make_cpu_device));
  for (const int ranks : {1, 2, 5, 8}) {
    all.push_back(local_world("Guarded", ranks, [] { return make_guarded_device(); }));
  }
  for (int ranks = 1; ranks <= 8 && find_gpus().count > 0; ++ranks) {
    all.push_back(local_world("Cuda", ranks, [] { return make_cuda_device(0); }));
  }
  for (int ranks = 1; ranks <= std::min(8, find_gpus().count); ++ranks) {
    all.push_back(nccl_world(ranks));
  }
  return all;
}

}  // namespace trident::test
