// A rank's state from a checkpoint, in whatever layout: it reads the boxes that it holds.
#pragma once

#include <set>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/taken_parts.h"
#include "core/context.h"
#include "parallel/state.h"

namespace trident {

// The checkpoint is whole, but of a state that isn't the run's.
class MismatchedState : public RequestError {
 public:
  using RequestError::RequestError;
};

// Writes master weights (from the weights, where the checkpoint has no masters), optimizer state
// and numbers of `state`, as Stepper::state() lists it; Stepper::restored() then makes the weights
// follow. A loss scale is taken of fp16 weights alone. MismatchedState that names the tensor or the
// number which the checkpoint lacks, or has in another shape; RequestError as
// CheckpointReader::read for damage.
void restore_state(Context&, State& state, CheckpointReader& reader, const TakenParts& taken = {});

// The files in which what restore_state() reads lies.
std::set<std::string> needed_files(const State& state, const Manifest& manifest,
                                   const TakenParts& taken = {});

}  // namespace trident
