// `init`: writes a starting config.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "engine/setup/presets.h"
#include "engine/setup/registry.h"

namespace trident::app {
namespace {

struct InitOptions {
  std::string file = "trident.json", preset = presets().front().name, format = "text";
  bool overwrite = false;
};

int init(const InitOptions& options) {
  const std::filesystem::path path = options.file;
  const bool standard = options.file == "-";
  const std::string name = standard ? options.preset : path.stem().string();
  const std::string text = preset_config(options.preset, name, *built_in_constraints());
  const bool json = options.format == "json";
  if (standard && json) {
    throw RequestError(
        "trident init: - is for the config; --format json reports where it was written");
  }
  if (standard) {
    fmt::print("{}", text);
    return 0;
  }
  std::error_code none;
  if (options.file.empty()) throw RequestError("trident init: needs the name of a file, not \"\"");
  need_writable("", options.file);
  const auto found = std::filesystem::symlink_status(path, none);
  if (std::filesystem::exists(found) && std::filesystem::exists(path, none) &&
      !std::filesystem::is_regular_file(path, none)) {
    throw RequestError(
        fmt::format("{}: is no regular file; choose another name", printable(options.file)));
  }
  if (!options.overwrite && std::filesystem::exists(found)) {
    throw RequestError(
        fmt::format("{}: is there already; choose another name, or give "
                    "--overwrite to replace it",
                    printable(options.file)));
  }
  write_file(options.file, text);
  std::string shown = printable(options.file);
  if (!json) fmt::print("wrote {}\n", shown);
  // Quotes the path for a shell.
  if (shown.starts_with("-")) shown = "./" + shown;
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
  if (shown.find_first_not_of(plain) != std::string::npos) shown = "'" + shown + "'";
  const std::vector<std::string> next = preset_next(options.preset, shown);
  if (json) {
    fmt::print("{}\n", json_text(nlohmann::ordered_json{
                           {"wrote", options.file}, {"preset", options.preset}, {"next", next}}));
    return 0;
  }
  fmt::print("next:\n");
  for (const std::string& line : next) fmt::print("  {}\n", line);
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("init", "Write a config to start from, with comments");
  auto options = std::make_shared<InitOptions>();
  command->add_option("file", options->file, "The file, or - for standard output")
      ->capture_default_str();
  std::string all = "One of:";
  for (const Preset& preset : presets())
    all += fmt::format("\n{:12} {}", preset.name, preset.about);
  command->add_option("--preset", options->preset, all)->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Replace a file that is there");
  add_format_option(*command, options->format);
  command->callback([options, &action] { action = [options] { return init(*options); }; });
}

}  // namespace trident::app
