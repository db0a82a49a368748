#include "app/options.h"

#include <CLI/CLI.hpp>

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

}  // namespace trident::app
