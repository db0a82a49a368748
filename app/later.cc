#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "core/error.h"

namespace trident::app {

void add_later(CLI::App& app) {
  for (const char* name : {"search"}) {
    auto* command = app.add_subcommand(name, "Not available yet");
    command->allow_extras();
    command->prefix_command();
    command->callback([name] {
      throw RequestError(std::string("trident ") + name + ": this command is not available yet");
    });
  }
}

}  // namespace trident::app
