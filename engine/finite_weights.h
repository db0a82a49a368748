// A check that a model's weights are finite, before the model is kept.
#pragma once

#include "engine/rank_model.h"

namespace trident {

// Whether all weights, of all ranks, are finite numbers in the compute dtype. Collective over the
// world; every rank gets the same answer.
bool weights_are_finite(RankModel&);

}  // namespace trident
