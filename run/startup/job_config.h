// The config of a job: each process loads it by itself, and all come to the same one, whatever
// their hosts have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/launch/launch.h"
#include "run/startup/auto_layout.h"
#include "settings/config.h"

namespace trident {

struct ConfigRequest {
  std::string path;
  std::vector<std::string> set;       // "a.b=value"
  std::optional<std::int64_t> ranks;  // the world size, where the config has "auto"
  // By which parallel "auto" is chosen; without, it stays (LoadedConfig::parallel_is_auto).
  std::optional<MachineSource> layouts = {};
  std::string text = {};  // the config, where a program has made it; `path` is for errors
  // Where no micro-batch size fits, that is no error, but LoadedConfig::fits_none.
  bool only_planned = false;
};

// Fills in what is "auto" by what the machines of all processes have: device, threads, the layout
// (which the first process chooses for all), the largest micro-batch that fits. `memory`: bytes a
// rank, for that size; else what is free. RequestError as load_config(), and where no size fits
// what is free.
// Collective over the job's processes, after Rendezvous::join().
LoadedConfig load(const ConfigRequest&, const Launch&,
                  std::optional<std::int64_t> memory = std::nullopt);

// LoadOptions::saved_model by the architectures of this program.
std::string saved_model_section(const std::string& directory);

// Bytes that a rank of this config may take here.
std::int64_t free_memory(const Config&, const Launch&);

// The config of this request without what this machine has to say: of one rank where its size is
// "auto", on the CPU where its device is.
LoadedConfig load_anywhere(const ConfigRequest&);

// Whether the layout of this request is to be chosen, as far as it can be read.
bool chooses_layout(const ConfigRequest&);

// RequestError where the config's transport is not how this process was started.
void check_launch(const Config&, const Launch&);

}  // namespace trident
