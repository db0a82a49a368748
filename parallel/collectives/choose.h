// Which algorithm `automatic` stands for.
#pragma once

#include <cstdint>

#include "parallel/process_group.h"

namespace trident {

struct AllReduceCase {
  bool shared_memory = false;  // the members read each other's memory
  int members = 2;
  std::int64_t count = 0;  // elements
  std::int64_t bytes = 0;
};

// By a table of measurements (docs/performance.md): the first row that holds.
Algorithm choose_all_reduce(const AllReduceCase&);

}  // namespace trident
