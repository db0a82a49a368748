// Saves the weights with which a run ends, and their moving average, as Hugging Face directories.
#pragma once

#include <string>

#include "engine/stepper.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "parallel/process_group.h"
#include "run/loop/run_reporter.h"
#include "run/loop/trainer.h"

namespace trident {

// Into `directory`, and the average into `directory`/ema. Collective over `files`, a group of the
// world without time-out. The stepper holds the average afterwards, where there is one. Error where
// a file can't be written.
void save_final_weights(Stepper&, const ProcessGroup& files, const std::string& directory,
                        const HuggingFaceExtras&, const TrainerHooks&, RunReporter&);

}  // namespace trident
