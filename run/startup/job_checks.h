// The checks that the processes of a job make before it runs: of each process by itself, and
// between processes.
//
// The functions marked as collective are called by every process of the job, in the same order,
// between Rendezvous::join() and Rendezvous::done(). An error of one process ends all of them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/request_problems.h"
#include "run/loop/trainer.h"
#include "run/processes/agreement.h"
#include "run/processes/devices.h"
#include "run/processes/launch.h"
#include "run/startup/bf16_products.h"
#include "settings/config.h"

namespace trident {

// Checks everything that this process can know before a run starts, and opens the devices.
// RequestError with all problems. Where there are none, texts are tokenized, if `texts` allows it,
// and a runtime.bf16_products of "auto" is decided: by `machine`, or without it by this process's,
// whose rates are kept in Launch::cache_folder. Writes nothing else. Collective over the job's
// processes, which wait for the processes that tokenize.
TrainingInputs checked_inputs(const LoadedConfig&, const Launch&, const TextAccess& texts,
                              std::optional<Devices>&, const std::optional<Bf16Machine>& machine);

// Checks that `config` can run here with the threads, devices and transport of this launch. Opens
// the devices and adds their problems.
void check_machine(const Config&, const Launch&, RequestProblems&, std::optional<Devices>&);

// One process tokenizes for all processes that share its cache; its error fails the whole job.
// Processes that still lack tokens afterwards, because they don't share the cache after all or have
// other texts, choose another process. `lacks` says whether tokens are missing here.
// prepare_again(true) tokenizes; prepare_again(false) opens the tokens that another process has
// made.
// Collective over the job's processes.
void tokenize_in_turn(const std::string& cache, const Launch&, const std::function<bool()>& lacks,
                      const std::function<void(bool writes)>& prepare_again);

// Refuses a job whose ranks would compute different things, before any rank writes a file: compares
// configs, machines, input files, tokens and checkpoints. Collective over the job's processes.
void compare_ranks(const TrainingInputs&, const Devices&, const Launch&);
// Compares a config, the directory of weights that is loaded ("" for none), and `more`.
void compare_ranks(const Config&, const std::string& weights, const std::vector<Fingerprint>& more,
                   const Devices&, const Launch&);
// Adds a fingerprint of the source's tokens if they were made from a text.
void add_fingerprint(const std::string& place, const TokenSource&, std::vector<Fingerprint>&);

// The versions of the program and its libraries, and the processor, as names and values for
// Manifest::made_by. A run that resumes with different ones gets different last digits.
std::map<std::string, std::string> made_with(const Devices&, const Launch&);

// A warning for a run with more threads than cores, "" for other runs; the run itself continues.
// Under MPI the text has one line for each such host. Collective over the job's processes.
std::string crowded_text(const Config&, const Launch&, const Devices&);

}  // namespace trident
