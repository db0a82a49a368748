#include "app/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "kernels/cuda_device.h"
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

LoadOptions load_options(const Config& config, const Launch& launch) {
  return {.rules = built_in_rules(),
          .cores = launch.cores,
          .micro_batch_size = config.batch.micro_batch_size,
          .device = config.runtime.device,
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
