#include "parallel/collectives/algorithm_registry.h"

namespace trident {

const std::vector<AlgorithmKind>& algorithm_registry() {
  static const std::vector<AlgorithmKind> table{
      {{.name = "direct", .in_rank_order = true, .gpu = true}, Algorithm::direct},
      {{.name = "ring"}, Algorithm::ring},
      {{.name = "tree"}, Algorithm::tree}};
  return table;
}

}  // namespace trident
