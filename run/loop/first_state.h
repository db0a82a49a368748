// Sets the state with which a rank's run begins: initial weights, the weights of a Hugging Face
// directory, or the state in a checkpoint.
#pragma once

#include <cstdint>

#include "engine/stepper.h"
#include "parallel/process_group.h"
#include "run/loop/trainer.h"
#include "run/loop/training_inputs.h"

namespace trident {

struct FirstState {
  std::int64_t skipped = 0;    // the number of steps skipped in a row before the start
  double reading_seconds = 0;  // for the checkpoint
};

// Collective over the world. `files`: a group of the world without time-out. Throws on all ranks:
// DamagedCheckpoint if the checkpoint is damaged, RequestError if it doesn't fit this run, Error if
// reading failed for a temporary reason.
FirstState take_first_state(const TrainingInputs&, const TrainerHooks&, Stepper&,
                            const ProcessGroup& files);

}  // namespace trident
