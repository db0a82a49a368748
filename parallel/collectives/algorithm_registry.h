// The all-reduce algorithms' table, as runtime.collective_algorithm and benchmarks name them.
#pragma once

#include <vector>

#include "parallel/collectives/collective.h"
#include "parallel/process_group.h"
#include "settings/constraints.h"

namespace trident {

struct AlgorithmKind : AlgorithmConstraints {
  Algorithm algorithm = Algorithm::automatic;
  // How it is carried out, where it isn't a row of the built-in table (collectives/table.cc): a
  // program's own, with a number of its own for `algorithm`, such as Algorithm{200}.
  std::vector<Collective> rows = {};
};

// Those of this library, without "auto".
const std::vector<AlgorithmKind>& algorithm_registry();

}  // namespace trident
