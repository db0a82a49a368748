#include "run/processes/launch.h"

namespace trident {

std::int64_t ranks_on_gpus(const Launch& launch, std::int64_t world, std::int64_t gpus) {
  if (!launch.mpi) return world;
  const bool own = gpus > 0 && gpus < launch.local_ranks && launch.gpus_chosen;
  return own ? 1 : launch.local_ranks;
}

}  // namespace trident
