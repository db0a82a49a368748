// Saves the weights with which a run ends, and their moving average, as Hugging Face directories.
#pragma once

#include <string>

#include "engine/stepper.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "parallel/process_group.h"
#include "run/loop/run_reporter.h"
#include "run/loop/trainer.h"

namespace trident {

// Saves into `directory`, and the average, if there is one, into `directory`/ema; the stepper holds
// the average afterwards. Collective over `files`, a group of the world without time-out. Throws
// Error if a file can't be written.
void save_final_weights(Stepper&, const ProcessGroup& files, const std::string& directory,
                        const HuggingFaceExtras&, const TrainerHooks&, RunReporter&);

}  // namespace trident
