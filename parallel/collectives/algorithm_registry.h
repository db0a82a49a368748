// The registry of all-reduce algorithms, under the names that runtime.collective_algorithm and
// benchmarks use.
#pragma once

#include <vector>

#include "parallel/collectives/collective.h"
#include "parallel/process_group.h"
#include "settings/constraints.h"

namespace trident {

struct AlgorithmKind : AlgorithmConstraints {
  Algorithm algorithm = Algorithm::automatic;
  // The implementation, where the built-in table (parallel/collectives/algorithm_choice.cc) has
  // none: rows of the program's own, with a number of their own for `algorithm`, such as
  // Algorithm{200}.
  std::vector<Collective> rows = {};
};

// The algorithms of this library, without "auto".
const std::vector<AlgorithmKind>& algorithm_registry();

}  // namespace trident
