// Options that several subcommands share.
#pragma once

#include <string>

#include "app/commands.h"
#include "training/run/job_config.h"

namespace trident::app {

// CONFIG, --set and --ranks.
void add_config_options(CLI::App&, ConfigRequest&);
// What "auto" stands for in layouts of a config that was loaded here.
LoadOptions load_options(const Config&, const Launch&);
// A grid (training/lab/grid.h) as it stands, or in a JSON file of that name.
std::string grid_text(const std::string& grid);
// "text" or "json".
void add_format_option(CLI::App&, std::string& format);

}  // namespace trident::app
