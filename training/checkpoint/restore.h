// A rank's state from a checkpoint, in whatever layout: it reads the boxes that it holds.
#pragma once

#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/state.h"
#include "training/checkpoint/checkpoint_reader.h"

namespace trident {

// Writes master weights (from the weights, where the checkpoint has no masters), optimizer state
// and numbers of `state`, as Stepper::state() lists it; Stepper::restored() then makes the weights
// follow. RequestError that names the tensor or the number which the checkpoint lacks, or has in
// another shape, and as CheckpointReader::read.
void restore_state(Context&, State& state, CheckpointReader& reader);

}  // namespace trident
