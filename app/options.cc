#include "app/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/printer.h"
#include "app/processors.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/process/terminal.h"
#include "engine/setup/registry.h"
#include "kernels/cuda_device.h"
#include "run/measurement/bench.h"
#include "run/startup/measured_models.h"
#include "settings/ineffective_keys.h"

namespace trident::app {

void add_config_options(CLI::App& command, ConfigRequest& request) {
  command.add_option("config", request.path, "The JSON config (docs/config.md)")->required();
  command.add_option("--set", request.set, "Override a key: a.b=value (JSON, else a string)")
      ->allow_extra_args(false);
  command.add_option("--ranks", request.ranks, "World size, where the config has \"auto\"");
}

void add_format_option(CLI::App& command, std::string& format) {
  command.add_option("--format", format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

std::string rates_file(const Launch& launch) {
  return launch.cache_folder.empty() ? "" : launch.cache_folder + "/product_rates.json";
}

void choose_layouts_here(ConfigRequest& request, const Launch& launch) {
  const auto report = [](const std::string& line) {
    print_error(line.ends_with('\n') ? line.substr(0, line.size() - 1) : line);
  };
  // mpirun and srun may bind this process to some of the machine's processors; only these count.
  const auto measure = [report, folder = launch.cache_folder](const std::vector<Config>& models,
                                                              std::int64_t cores) {
    return kept_machine(
        {.configs = models,
         .cores = static_cast<int>(std::min<std::int64_t>(cores, find_processors().own)),
         .iterations = 2,
         .seconds = MeasureBudget{}.seconds,
         .report = report},
        folder);
  };
  request.layouts = {.measure = measure,
                     .folder = machines_folder(),
                     .report = report,
                     .progress = search_progress()};
}

void plan_for(const Machine& machine, ConfigRequest& request) {
  const auto is_device = [](const std::string& set) { return set.starts_with("runtime.device="); };
  if (std::none_of(request.set.begin(), request.set.end(), is_device)) {
    request.set.insert(request.set.begin(),
                       fmt::format("runtime.device={}", machine.device.gpu ? "cuda" : "cpu"));
  }
  request.layouts = {.machine = machine, .progress = search_progress()};
}

std::function<void(const SearchProgress&)> search_progress() {
  if (!terminal_of(STDERR_FILENO).live) return {};
  return [line = std::make_shared<SearchLine>()](const SearchProgress& p) { line->show(p); };
}

std::string machines_folder() {
  namespace fs = std::filesystem;
  const std::string here = "configs/machines";
  std::error_code none;
  if (fs::is_directory(here, none)) return here;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  for (fs::path above = program.parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    for (const char* place : {"configs/machines", "share/trident/machines"}) {
      if (fs::is_directory(above / place, none)) return (above / place).string();
    }
  }
  return here;
}

LoadedConfig load_reported(const ConfigRequest& request, const Launch& launch,
                           std::optional<std::int64_t> memory) {
  LoadedConfig loaded = load(request, launch, memory);
  if (!launch.leads) return loaded;
  for (const std::string& note : ineffective_key_notes(loaded)) print_error(note);
  return loaded;
}

void add_notes(nlohmann::ordered_json& document, const std::vector<std::string>& notes) {
  if (!notes.empty()) document["notes"] = notes;
}

LoadOptions load_options(const BatchConfig& batch, const RuntimeConfig& runtime,
                         const Launch& launch) {
  return {.constraints = built_in_constraints(),
          .cores = launch.cores,
          .micro_batch_size = batch.micro_batch_size,
          .device = runtime.device,
          .saved_model = saved_model_section,
          .gpus = find_gpus().count};
}

std::string grid_text(const std::string& grid) {
  if (!grid.ends_with(".json") || grid.find('=') != std::string::npos) return grid;
  return read_file(grid, std::uint64_t{1} << 20);
}

void need_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path whole = fs::absolute(path, none);
  const bool there =
      fs::exists(whole, none) && !fs::is_regular_file(whole, none);  // for example, a pipe
  const bool fits = !fs::is_directory(whole, none) && whole.has_filename() &&
                    (there || fs::is_directory(whole.parent_path(), none)) &&
                    access(there ? whole.c_str() : whole.parent_path().c_str(), W_OK) == 0;
  if (fits) return;
  throw RequestError(fmt::format("{}{}{}: needs the path of a file that can be written", option,
                                 option.empty() ? "" : ": ", printable(path)));
}

std::vector<std::string> items_of(const std::string& option, const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  if (std::ranges::find(items, "") == items.end()) return items;
  throw RequestError(fmt::format("{}: \"{}\": has an item that is empty", option, printable(list)));
}

}  // namespace trident::app
