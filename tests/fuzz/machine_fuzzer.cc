// A machine's file. An accepted file has the numbers that its header promises.
#include <cmath>

#include "fuzz/fuzzing.h"
#include "planner/machine/machine.h"
#include "planner/machine/operation_times.h"

namespace trident::fuzzing {

void fuzz_machine(std::string_view input) {
  Machine machine;
  if (!accepted([&] { machine = parse_machine(input, "machine.json"); })) return;
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  require(positive(machine.device.memory) && positive(machine.device.memory_bandwidth) &&
              positive(machine.inside.bandwidth) && positive(machine.across.bandwidth) &&
              machine.devices_per_node >= 1 && machine.device.units >= 1 &&
              !machine.device.peak.empty(),
          "numbers are positive");
  const auto time = [](double value) { return value >= 0 && std::isfinite(value); };
  require(time(machine.device.launch) && time(machine.inside.latency) &&
              time(machine.across.latency) && time(machine.device.taken_by_collectives) &&
              time(machine.device.skew),
          "latencies and overheads are finite numbers");
  require(std::isfinite(collective_seconds(machine, Operation::all_reduce, 1e6, {16, 8})),
          "collectives take a number of seconds");
  for (const double part :
       {machine.efficiency.products, machine.efficiency.memory, machine.efficiency.links}) {
    require(part > 0 && part <= machine.most_efficiency(), "efficiencies are in their range");
  }
  for (const auto& [dtype, rate] : machine.device.peak) {
    require(positive(rate), "rates are positive");
    require(product_seconds(machine, dtype, 128, 256, 512) > 0, "products take time");
  }
}

}  // namespace trident::fuzzing
