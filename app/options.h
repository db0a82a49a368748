// Options that several subcommands share.
#pragma once

#include <string>

#include "app/commands.h"
#include "training/run/job_config.h"

namespace trident::app {

// CONFIG, --set and --ranks.
void add_config_options(CLI::App&, ConfigRequest&);
// "text" or "json".
void add_format_option(CLI::App&, std::string& format);

}  // namespace trident::app
