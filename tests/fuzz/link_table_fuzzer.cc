// The output of nccl-tests or OSU's benchmarks. An accepted output gives a valid link.
#include <cmath>

#include "fuzz/fuzzing.h"
#include "planner/machine/link_table.h"

namespace trident::fuzzing {

void fuzz_link_table(std::string_view input) {
  Machine::Link link;
  if (!accepted([&] { link = read_link_table(input, "table", {1, 1}).link; })) return;
  const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
  require(positive(link.bandwidth) && positive(link.latency), "a link has a rate and a latency");
}

}  // namespace trident::fuzzing
