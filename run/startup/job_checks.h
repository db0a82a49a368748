// What the processes of a job check before it runs, each for itself and with the others.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/request_problems.h"
#include "run/launch/agreement.h"
#include "run/launch/devices.h"
#include "run/launch/launch.h"
#include "run/loop/trainer.h"
#include "run/startup/bf16_products.h"
#include "settings/config.h"

namespace trident {

// Everything that this process can know before a run starts; opens the devices. RequestError with
// all problems. Texts are tokenized last, if `texts` says so: nothing else is written. Collective
// over the job's processes, which wait for whichever of them tokenizes.
// `machine`: by which runtime.bf16_products is chosen; else this one.
TrainingInputs checked_inputs(const LoadedConfig&, const Launch&, const TextAccess& texts,
                              std::optional<Devices>&, const std::optional<Bf16Machine>& machine);

// Threads, devices, transport: whether `config` can run here as it was started. Opens the devices.
// Adds to the problems.
void check_machine(const Config&, const Launch&, RequestProblems&, std::optional<Devices>&);

// One process tokenizes for all that share its cache; its error is everybody's. Those for whom that
// hasn't been done, as they don't share it after all or have other texts, choose anew. `lacks`:
// tokens are missing here; look_again(writes): tokenizes, or finds what another process has made.
// Collective over the job's processes.
void tokenize_in_turn(const std::string& cache, const Launch&, const std::function<bool()>& lacks,
                      const std::function<void(bool writes)>& look_again);

// Refuses ranks that would compute something else than the others, before anything is written.
// Collective over the job's processes.
void compare_ranks(const TrainingInputs&, const Devices&, const Launch&);
// The same of a config, the directory of weights that is loaded ("" for none), and `more`.
void compare_ranks(const Config&, const std::string& weights, const std::vector<Fingerprint>& more,
                   const Devices&, const Launch&);
// Of tokens that were made of a text; added where there are such.
void add_fingerprint(const std::string& place, const TokenSource&, std::vector<Fingerprint>&);

// What made_by() adds to: program, libraries, processor. With others a run that goes on has other
// last digits.
std::map<std::string, std::string> made_with(const Devices&, const Launch&);

// A run with more threads than cores goes on, but nobody wants it. Under MPI a line from each host,
// on rank 0. Collective over the job's processes.
std::string crowded_text(const Config&, const Launch&, const Devices&);

}  // namespace trident
