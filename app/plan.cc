#include "training/plan/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "config/moot.h"
#include "training/plan/fit.h"
#include "training/run/bf16_products.h"
#include "training/run/ramp_lists.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"
#include "training/setup/param_group_check.h"

namespace trident::app {

void add_plan(CLI::App& app, const Launch& launch, Action& action) {
  struct Options {
    ConfigRequest config;
    std::string format = "text";
    std::optional<std::string> memory;
    bool all_ranks = false;
  };
  auto* command = app.add_subcommand("plan", "Show what a run would take, rank by rank");
  auto options = std::make_shared<Options>();
  add_config_options(*command, options->config);
  add_format_option(*command, options->format);
  command->add_option(
      "--memory", options->memory,
      "Memory a rank, such as 24GiB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB): does it "
      "fit, and what would; exit code 2 where it doesn't");
  command->add_flag("--all-ranks", options->all_ranks,
                    "A line for each kind of rank, however many there are");
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      launch.start->join("plan");
      std::optional<std::int64_t> memory;
      if (options->memory) memory = parse_memory(*options->memory);
      choose_layouts_here(options->config);
      const LoadedConfig loaded = load_told(options->config, launch, memory);
      Config config = loaded.config;
      config.runtime.bf16_products = expected_bf16_products(config, launch);
      if (!loaded.why_layout.empty()) fmt::print(stderr, "{}\n", loaded.why_layout);
      const Architecture& architecture = *architecture_of(config);
      std::optional<Plan> plan;  // where it is shown
      std::optional<MemoryFit> fit;
      if (launch.leads) {
        // What train would refuse, too.
        check_param_groups(config, architecture);
        const BatchRamp ramp = ramp_of(config);
        if (ramp.samples > 0) {
          RampLists(config, BatchSizes(config.batch.global_batch_size, ramp, 0, 0));
        }
        plan = make_plan(config, architecture);
      }
      if (launch.leads && memory) fit = fit_memory(config, architecture, *memory);
      launch.start->agree({});
      launch.start->done();
      if (!launch.leads) return 0;
      if (options->format == "json") {
        nlohmann::ordered_json json = plan_json(*plan);
        if (fit) json["memory"] = fit_json(*fit);
        add_notes(json, moot_notes(loaded));
        fmt::print("{}\n", json.dump(2));
      } else {
        fmt::print("{}{}\n", fit ? fit_text(*fit) : "", plan_text(*plan, options->all_ranks));
      }
      return fit && !fit->fits() ? 2 : 0;
    };
  });
}

}  // namespace trident::app
