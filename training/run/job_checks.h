// What the processes of a job check before it runs, each for itself and with the others.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "config/config.h"
#include "training/run/devices.h"
#include "training/run/launch.h"
#include "training/run/trainer.h"

namespace trident {

// Everything that this process can know before a run starts; opens the devices. RequestError with
// all problems. Texts are tokenized last, if `texts` says so: nothing else is written. Collective
// over the job's processes, which wait for whichever of them tokenizes.
TrainingInputs checked_inputs(const LoadedConfig&, const Launch&, const TextAccess& texts,
                              std::optional<Devices>&);

// Refuses ranks that would compute something else than the others, before anything is written.
// Collective over the job's processes.
void compare_ranks(const TrainingInputs&, const Devices&, const Launch&);

// What made_by() adds to: program, libraries, processor. With others a run that goes on has other
// last digits.
std::map<std::string, std::string> made_with(const Devices&, const Launch&);

// A run with more threads than cores goes on, but nobody wants it. Under MPI a line from each host,
// on rank 0. Collective over the job's processes.
std::string crowded_text(const Config&, const Launch&, const Devices&);

}  // namespace trident
