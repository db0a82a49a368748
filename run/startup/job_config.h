// Loads the config of a job. Each process loads it by itself, and all processes arrive at the same
// config even where their hosts differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/processes/launch.h"
#include "run/startup/auto_layout.h"
#include "settings/config.h"

namespace trident {

struct ConfigRequest {
  std::string path;
  std::vector<std::string> set;       // overrides, "a.b=value"
  std::optional<std::int64_t> ranks;  // the world size, where the config says "auto"
  // Where to find the machine that parallel "auto" is chosen for. Without it "auto" stays
  // (LoadedConfig::parallel_is_auto).
  std::optional<MachineSource> layouts = {};
  std::string text = {};  // the config itself, if not empty; `path` is then only for errors
  // If true, LoadedConfig::fits_none reports that no micro-batch size fits, instead of an error.
  bool only_planned = false;
  bool least_data_parallel = false;  // LoadOptions::least_data_parallel
};

// Loads the config and replaces each "auto" according to the machines of all processes: device,
// threads, layout (which the first process chooses for all), and the largest micro-batch that fits.
// `memory` is the limit for that micro-batch in bytes a rank; the default is the free memory.
// RequestError as load_config(), and where no micro-batch size fits the free memory.
// Collective over the job's processes, after Rendezvous::join().
LoadedConfig load(const ConfigRequest&, const Launch&,
                  std::optional<std::int64_t> memory = std::nullopt);

// LoadOptions::saved_model for the built-in architectures.
std::string saved_model_section(const std::string& directory);

// The memory in bytes that a rank of this config may take on this machine.
std::int64_t free_memory(const Config&, const Launch&);

// Loads the config of a request independently of this machine: with one rank where the world size
// is "auto", and on the CPU where the device is "auto".
LoadedConfig load_anywhere(const ConfigRequest&);

// Whether the config of a request has parallel "auto", as far as the config can be read.
bool chooses_layout(const ConfigRequest&);

// RequestError where the config's transport doesn't match the way this process was started.
void check_launch(const Config&, const Launch&);

}  // namespace trident
