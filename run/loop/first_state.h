// Gives a rank the state with which its run begins: initial weights, those of a Hugging Face
// directory, or all that a checkpoint has.
#pragma once

#include <cstdint>

#include "engine/stepper.h"
#include "parallel/process_group.h"
#include "run/loop/trainer.h"
#include "run/loop/training_inputs.h"

namespace trident {

struct FirstState {
  std::int64_t skipped = 0;    // steps in a row that were skipped before
  double reading_seconds = 0;  // of the checkpoint
};

// Collective over the world. `files`: a group of the world without time-out.
// DamagedCheckpoint, on all ranks, where the checkpoint to begin with can't be read; RequestError
// where it doesn't fit this run; Error where reading failed for a reason of the moment.
FirstState take_first_state(const TrainingInputs&, const TrainerHooks&, Stepper&,
                            const ProcessGroup& files);

}  // namespace trident
