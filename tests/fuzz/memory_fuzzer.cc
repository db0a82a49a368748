// The amount of `trident plan --memory`.
#include <cstdint>

#include "fuzz/fuzzing.h"
#include "planner/plan/fit.h"

namespace trident::fuzzing {

void fuzz_memory(std::string_view input) {
  std::int64_t bytes = 1;
  accepted([&] { bytes = parse_memory(input); });
  require(bytes >= 1, "an amount of memory is a byte or more");
}

}  // namespace trident::fuzzing
