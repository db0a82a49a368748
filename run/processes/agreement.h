// Fingerprints of everything that the ranks of a job must have in common, so that replicas stay
// equal: every key of the config except the paths of files and the keys that rank 0 alone reads,
// the contents of input files, the program, and the instructions that its kernels use.
//
// Two functions are collective, as stated there. Differences and unreadable files are
// RequestErrors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "datasets/dataset.h"
#include "parallel/process_group.h"
#include "run/processes/devices.h"
#include "settings/config.h"

namespace trident {

// A property that all ranks must share, and its value for people.
struct Fingerprint {
  std::string name, value;
  std::string advice = {};  // shown if the values differ
};

// One fingerprint for each key. The value of a path only states whether there is one.
std::vector<Fingerprint> config_fingerprints(const Config& config);

// Throws RequestError on all ranks of `world` if the config_fingerprints() of one rank differ from
// rank 0's. Collective over `world`.
void require_same_config(const Config& config, Context&, const ProcessGroup& world);

// Fingerprints of the versions of the program and its libraries, of the processor's instructions
// that the kernels use, and of `environment`: variables that change numbers, as names and values.
std::vector<Fingerprint> machine_fingerprints(
    const Devices& devices, const std::vector<std::pair<std::string, std::string>>& environment);

// A file that every rank reads, named by its config key.
struct InputFile {
  std::string name, path;
};
// The files that a run reads. `weights`: the Hugging Face directory that the run begins with; "":
// none.
std::vector<InputFile> input_files(const DataConfig&, const PipelineConfig&,
                                   const std::string& weights);

// A hash of the contents of the files that data.train names, and of the texts and tokenizer that
// tokens were made from. Of a large file it reads a part. Throws RequestError if a file can't be
// read.
std::string training_data_hash(const DataConfig&, const Dataset& train);

// An exchange between the processes of a job: each gives a text, and rank 0 makes the answer for
// all from these texts, which are ordered by rank.
using ExchangeBytes = std::function<std::string(
    const std::string& own, const std::function<std::string(const std::vector<std::string>&)>&)>;

// Fingerprints of the contents of `files`. Processes of one host share a file if their paths lead
// to the same device, inode, size and modification time. One of them reads it for all; no process
// reads a file that all processes share. `rank` is this process's. Collective over the job's
// processes.
std::vector<Fingerprint> file_fingerprints(const std::vector<InputFile>& files, int rank,
                                           const ExchangeBytes& exchange);

}  // namespace trident
