// The conformance suite on `local`: 1 to 8 ranks on the CPU device, some on the guarded one, and on
// a GPU where there is one.
#include "core/device.h"
#include "parallel/collectives_conformance.h"
#include "support/devices.h"

namespace trident::test {
namespace {

World local_world(const std::string& name, int ranks, std::unique_ptr<Device> (*make)()) {
  return {name + std::to_string(ranks), [ranks, make](const auto& options, const auto& body) {
            const auto device = make();
            run_local(ranks, options, [&](Transport& transport) { body(transport, *device); });
          }};
}

// NCCL, a GPU for each rank.
World nccl_world(int ranks) {
  return {"Nccl" + std::to_string(ranks), [ranks](TransportOptions options, const auto& body) {
            std::vector<std::unique_ptr<Device>> devices;
            for (int r = 0; r < ranks; ++r) devices.push_back(make_cuda_device(r));
            options.nccl = true;
            run_local(ranks, options, [&](Transport& transport) {
              body(transport, *devices[static_cast<std::size_t>(transport.world().rank())]);
            });
          }};
}

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
