// Whether a model is worth keeping.
#pragma once

#include "engine/rank_model.h"

namespace trident {

// Whether all weights, of all ranks, are finite numbers in the compute dtype. Every rank takes part
// and gets the same answer.
bool weights_are_finite(RankModel&);

}  // namespace trident
