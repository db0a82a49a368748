// The all-reduce algorithms' table, as runtime.collective_algorithm and benchmarks name them.
#pragma once

#include <vector>

#include "config/kinds.h"
#include "parallel/process_group.h"

namespace trident {

struct AlgorithmKind : AlgorithmRules {
  Algorithm algorithm = Algorithm::automatic;
};

// Those of this library, without "auto".
const std::vector<AlgorithmKind>& algorithm_kinds();

}  // namespace trident
