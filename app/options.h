// Options and helpers that several subcommands share.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.h"
#include "planner/search/layout_search.h"
#include "run/startup/job_config.h"

namespace trident::app {

// Adds CONFIG, --set and --ranks.
void add_config_options(CLI::App&, ConfigRequest&);
// Makes the request choose layouts of "auto" for this machine, with progress on standard error. A
// measurement of the machine is kept in Launch::cache_folder.
void choose_layouts_here(ConfigRequest&, const Launch&);
// Makes the request load a config for the devices of `machine`, which needn't exist here, and
// choose a layout of "auto" for them. For commands that compute nothing.
void plan_for(const Machine&, ConfigRequest&);
// The folder of named machines: configs/machines of the working directory, or of a folder
// above the program's own, or share/trident/machines beside an installed program's.
std::string machines_folder();
// Loads the config of a request and prints notes about keys without effect on standard error.
LoadedConfig load_reported(const ConfigRequest&, const Launch&,
                           std::optional<std::int64_t> memory = std::nullopt);
// Adds the notes of a loaded config to a document, unless there are none.
void add_notes(nlohmann::ordered_json& document, const std::vector<std::string>& notes);
// The options to load variants of `config` in other layouts; they set the values of "auto".
LoadOptions load_options(const BatchConfig&, const RuntimeConfig&, const Launch&);
// The text of a grid (planner/search/grid.h), or of the JSON file that `grid` names.
std::string grid_text(const std::string& grid);
// RequestError, with the option's name, where no file can be written at that path. Commands call it
// before they spend hours on the file's contents. A path of "" is accepted; `option` is "" for a
// path that is not an option's value.
void need_writable(const std::string& option, const std::string& path);
// The file that keeps the best known product rates of machines from run to run
// (report/best_rates.h); "" without a cache folder.
std::string rates_file(const Launch&);
// The items of a comma-separated list. RequestError, with the option's name, where an item is
// empty.
std::vector<std::string> items_of(const std::string& option, const std::string& list);
// Shows the progress of a search in a line on standard error; empty if that is no terminal.
std::function<void(const SearchProgress&)> search_progress();
// Adds --format, "text" or "json".
void add_format_option(CLI::App&, std::string& format);

}  // namespace trident::app
