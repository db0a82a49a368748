// What several subcommands share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "config/config.h"

namespace trident::app {

struct ConfigOptions {
  std::string path;
  std::vector<std::string> set;
  std::optional<std::int64_t> ranks;
};
// CONFIG, --set and --ranks.
void add_config_options(CLI::App&, ConfigOptions&);
// `memory`: bytes a rank, for an automatic micro-batch size; else what the machine has.
LoadedConfig load(const ConfigOptions&, const Launch&,
                  std::optional<std::int64_t> memory = std::nullopt);

// RequestError where the config's transport is not how this process was started.
void check_launch(const Config&, const Launch&);

// "text" or "json".
void add_format_option(CLI::App&, std::string& format);

}  // namespace trident::app
