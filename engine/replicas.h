// Before the first step: what ranks hold alike is alike, to the bit.
#pragma once

#include "engine/rank_model.h"

namespace trident {

// Compares hashes of the live weights: of data-parallel replicas, of parameters that
// tensor-parallel ranks do not cut, of a tied weight's two copies. Under ZeRO stage 3 only of
// weights that are held whole. RequestError that names a parameter, the group and who has what.
// Collective over the world.
void require_equal_replicas(RankModel&);

}  // namespace trident
