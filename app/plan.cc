#include "training/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/options.h"

namespace trident::app {

void add_plan(CLI::App& app, const Launch& launch, Action& action) {
  struct Options {
    ConfigOptions config;
    std::string format = "text";
  };
  auto* command = app.add_subcommand("plan", "Show what a run would take, rank by rank");
  auto options = std::make_shared<Options>();
  add_config_options(*command, options->config);
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      const Config config = load(options->config, launch).config;
      const Plan plan = make_plan(config, *built_in_architectures().at(config.model.architecture));
      fmt::print("{}\n", options->format == "json" ? plan_json(plan) : plan_text(plan));
      return 0;
    };
  });
}

}  // namespace trident::app
