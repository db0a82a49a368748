// What the ranks of a job must have alike, so that replicas stay equal: every key of the config but
// where files lie and what rank 0 alone writes, the contents of files that are read, the program,
// the instructions that its kernels use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/context.h"
#include "datasets/dataset.h"
#include "parallel/process_group.h"
#include "run/launch/devices.h"
#include "settings/config.h"

namespace trident {

// Something that has to be equal, and its value for people.
struct Fingerprint {
  std::string name, value;
  std::string advice = {};  // where it differs
};

// One for each key. Of a path it only says whether there is one.
std::vector<Fingerprint> config_fingerprints(const Config& config);

// RequestError where a rank of `world` has another config than rank 0, as fingerprints tell.
// Collective.
void require_same_config(const Config& config, Context&, const ProcessGroup& world);

// The program's and its libraries' versions, the processor's instructions that kernels use, and
// `environment`: variables that change numbers, as names and values.
std::vector<Fingerprint> machine_fingerprints(
    const Devices& devices, const std::vector<std::pair<std::string, std::string>>& environment);

// A file that every rank reads, under the key that leads to it.
struct InputFile {
  std::string name, path;
};
// `weights`: the Hugging Face directory that the run begins with, "" where there is none.
std::vector<InputFile> input_files(const Config& config, const std::string& weights);

// Of the contents of the files that data.train leads to, of large ones of a part, and of what
// tokens were made of. RequestError where one can't be read.
std::string training_data_hash(const Config&, const Dataset& train);

// How processes ask each other: each gives a text, rank 0 makes one text for all of what they gave,
// by rank.
using ExchangeBytes = std::function<std::string(
    const std::string& own, const std::function<std::string(const std::vector<std::string>&)>&)>;

// Of the contents of `files`. Processes of one host whose paths lead to the same file (device,
// inode, size, time of change) have it in common: one of them reads it, and none does where all
// have it in common. `rank` is this one's. Collective.
std::vector<Fingerprint> file_fingerprints(const std::vector<InputFile>& files, int rank,
                                           const ExchangeBytes& exchange);

}  // namespace trident
