// Options that several subcommands share.
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

// CONFIG, --set and --ranks.
void add_config_options(CLI::App&, ConfigRequest&);
// Layouts that are "auto" are chosen for this machine, which says so on standard error. Where it is
// measured for that, it is so once (Launch::cache_folder).
void choose_layouts_here(ConfigRequest&, const Launch&);
// For commands that compute nothing: the config is one for this machine's devices, which needn't be
// here, and its layout, where that is "auto", the best for them.
void plan_for(const Machine&, ConfigRequest&);
// Where machines that are named lie: configs/machines of the working directory, or of a folder
// above the program's own, or share/trident/machines beside an installed program's.
std::string machines_folder();
// The config of a request, with what in it has no effect told on standard error.
LoadedConfig load_reported(const ConfigRequest&, const Launch&,
                           std::optional<std::int64_t> memory = std::nullopt);
// The notes of a loaded config in a document; none: nothing.
void add_notes(nlohmann::ordered_json& document, const std::vector<std::string>& notes);
// What "auto" stands for in layouts of a config that was loaded here.
LoadOptions load_options(const Config&, const Launch&);
// A grid (planner/search/grid.h) as it stands, or in a JSON file of that name.
std::string grid_text(const std::string& grid);
// RequestError, with the option's name, where a file of that path can't be written, before hours
// are spent on what goes into it. "" is none; an option of "" is that of a path without one.
void need_writable(const std::string& option, const std::string& path);
// The best rates of products that are known of machines (report/best_rates.h), kept from
// run to run; "" where there is no place for it.
std::string rates_file(const Launch&);
// The items of a list with commas between them. RequestError, with the option's name, where one is
// empty.
std::vector<std::string> items_of(const std::string& option, const std::string& list);
// A line on standard error where that is a terminal, else nothing.
std::function<void(const SearchProgress&)> search_progress();
// "text" or "json".
void add_format_option(CLI::App&, std::string& format);

}  // namespace trident::app
