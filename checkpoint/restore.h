// Restores a rank's state from a checkpoint of any layout. Each rank reads the slices that it
// holds.
//
// Not collective: each rank calls it with a reader of its own.
#pragma once

#include <set>
#include <string>

#include "base/error.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/taken_parts.h"
#include "core/context.h"
#include "parallel/state.h"

namespace trident {

// Thrown if the checkpoint is undamaged but its state doesn't fit the run's.
class MismatchedState : public RequestError {
 public:
  using RequestError::RequestError;
};

// Sets master weights, optimizer state and numbers of `state`, as Stepper::state() lists it. A
// checkpoint without master weights supplies its weights instead. Stepper::restored() then derives
// the weights. The loss scale is restored only if the checkpoint's weights are fp16. Throws
// MismatchedState, with the name, if the checkpoint lacks a tensor or number or has another shape
// for it. Throws RequestError for damage, as CheckpointReader::read does.
void restore_state(Context&, State& state, CheckpointReader& reader, const TakenParts& taken = {});

// The files that restore_state() reads.
std::set<std::string> needed_files(const State& state, const Manifest& manifest,
                                   const TakenParts& taken = {});

}  // namespace trident
