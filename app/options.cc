#include "app/options.h"

#include <CLI/CLI.hpp>

namespace trident::app {

void add_config_options(CLI::App& command, ConfigOptions& options) {
  command.add_option("config", options.path, "The JSON config (docs/config.md)")->required();
  command.add_option("--set", options.set, "Override a key: a.b=value (JSON, else a string)")
      ->allow_extra_args(false);
  command.add_option("--ranks", options.ranks, "World size, where data_parallel_size is \"auto\"");
}

LoadedConfig load(const ConfigOptions& options, const Launch& launch) {
  LoadOptions load;
  load.ranks = options.ranks;
  load.cores = launch.cores;
  if (launch.mpi) {
    load.ranks = launch.ranks;
    load.local_ranks = launch.local_ranks;
    load.transport = "mpi";
  }
  return load_config(options.path, options.set, load);
}

void add_format_option(CLI::App& command, std::string& format) {
  command.add_option("--format", format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace trident::app
