#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "engine/setup/registry.h"

namespace trident::app {

void add_schema(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("schema", "Print the JSON Schema of a config");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "Print the reference page (docs/config.md) instead");
  command->callback([markdown, &action] {
    action = [markdown] {
      fmt::print("{}", *markdown ? config_reference_markdown(*built_in_constraints())
                                 : config_schema(*built_in_constraints()));
      return 0;
    };
  });
}

}  // namespace trident::app
