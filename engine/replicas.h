// A check before the first step: replicated weights are bitwise identical on all ranks.
#pragma once

#include "engine/rank_model.h"

namespace trident {

// Compares hashes of the live weights: of data-parallel replicas, of parameters that are replicated
// over tensor-parallel ranks, and of a tied weight's two copies. Under ZeRO stage 3 it compares
// only replicated weights. Throws RequestError that names a parameter, the group, and two ranks
// with their hashes. Collective over the world.
void require_equal_replicas(RankModel&);

}  // namespace trident
