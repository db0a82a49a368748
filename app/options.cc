#include "app/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "app/processors.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/process.h"
#include "kernels/cuda_device.h"
#include "training/bench/bench.h"
#include "training/setup/kinds.h"

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

void choose_layouts_here(ConfigRequest& request) {
  // mpirun and srun bind ranks to some of the machine's processors.
  const auto measure = [](const std::vector<Config>& models, std::int64_t cores) {
    return bench_machine(
        {.configs = models,
         .cores = static_cast<int>(std::min<std::int64_t>(cores, find_processors().own)),
         .iterations = 2});
  };
  request.layouts = {.measure = measure,
                     .folder = machines_folder(),
                     .tell = [](const std::string& line) { print_error(line); }};
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

LoadOptions load_options(const Config& config, const Launch& launch) {
  return {.rules = built_in_rules(),
          .cores = launch.cores,
          .micro_batch_size = config.batch.micro_batch_size,
          .device = config.runtime.device,
          .saved_model = saved_model_section,
          .gpus = find_gpus().count};
}

std::string grid_text(const std::string& grid) {
  if (!grid.ends_with(".json") || grid.find('=') != std::string::npos) return grid;
  return read_file(grid, std::uint64_t{1} << 20);
}

void need_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(path) && access(folder.c_str(), W_OK) == 0) return;
  throw RequestError(
      fmt::format("{}: {}: needs the path of a file that can be written", option, printable(path)));
}

}  // namespace trident::app
