// A hostfile of `trident launch`.
#include <cstdint>

#include "fuzz/fuzzing.h"
#include "run/supervisor/elastic.h"
#include "support/temp_dir.h"

namespace trident::fuzzing {

void fuzz_hosts(std::string_view input) {
  const std::string path = empty_folder() + "/hosts";
  testing::spit(path, input);
  std::vector<Host> hosts;
  if (!accepted([&] { hosts = read_hosts(path); })) return;
  std::int64_t slots = 0;
  for (const Host& host : hosts) {
    require(!host.name.empty() && host.slots >= 1, "a host has a name and a slot");
    require(!__builtin_add_overflow(slots, host.slots, &slots), "all slots together are a number");
  }
  require(!hosts.empty(), "there is a host");
}

}  // namespace trident::fuzzing
