#include "planner/plan/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "engine/setup/from_config.h"
#include "engine/setup/param_group_check.h"
#include "engine/setup/registry.h"
#include "planner/machine/machine.h"
#include "planner/plan/fit.h"
#include "run/loop/ramp_lists.h"
#include "run/startup/bf16_products.h"
#include "settings/ineffective_keys.h"

namespace trident::app {
namespace {

// Loads the config to plan. "auto" is resolved for the devices of the named machine. Without a
// name, it is resolved for runtime.machine if the layout is "auto", else for the devices here.
LoadedConfig load_to_plan(ConfigRequest request, const std::string& name,
                          std::optional<std::int64_t> memory, const Launch& launch) {
  request.text = read_config(request.path);  // read only once, since it may be a pipe
  request.only_planned = true;
  std::optional<Machine> machine;
  if (!name.empty()) {
    machine = read_machine(name, machines_folder());
  } else if (chooses_layout(request)) {
    const LoadedConfig written = load_anywhere(request);
    const RuntimeConfig& runtime = written.config.runtime;
    if (!runtime.machine.empty()) {
      Machine own = read_machine(runtime.machine, machines_folder());
      // If the device doesn't match, choosing the layout reports the error.
      if (written.device_is_auto || own.device.gpu == (runtime.device == "cuda")) machine = own;
    }
  }
  if (!machine) {
    choose_layouts_here(request, launch);
    return load_reported(request, launch, memory);
  }
  plan_for(*machine, request);
  return load_reported(request, launch,
                       memory.value_or(static_cast<std::int64_t>(machine->device.memory)));
}

}  // namespace

void add_plan(CLI::App& app, const Launch& launch, Action& action) {
  struct Options {
    ConfigRequest config;
    std::string format = "text", machine;
    std::optional<std::string> memory;
    bool all_ranks = false;
  };
  auto* command =
      app.add_subcommand("plan", "Show memory, FLOPs and traffic of a run, rank by rank");
  auto options = std::make_shared<Options>();
  add_config_options(*command, options->config);
  add_format_option(*command, options->format);
  command->add_option(
      "--memory", options->memory,
      "Memory a rank, such as 24GiB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB): does it "
      "fit, and which settings would; exit code 2 where it doesn't");
  command->add_option("--machine", options->machine,
                      "A machine's JSON file, or the name of one in configs/machines: values of "
                      "\"auto\" are chosen for its devices, which needn't be here");
  command->add_flag("--all-ranks", options->all_ranks,
                    "A line for each kind of rank, however many there are");
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      launch.start->join("plan");
      std::optional<std::int64_t> memory;
      if (options->memory) memory = parse_memory(*options->memory);
      const LoadedConfig loaded = load_to_plan(options->config, options->machine, memory, launch);
      Config config = loaded.config;
      config.runtime.bf16_products = expected_bf16_products(config, launch);
      if (!loaded.why_layout.empty()) fmt::print(stderr, "{}\n", loaded.why_layout);
      const Architecture& architecture = *architecture_of(config);
      std::optional<Plan> plan;  // on the leading process
      std::optional<MemoryFit> fit;
      if (launch.leads) {
        // These checks find the errors that train would report.
        check_param_groups(config, architecture);
        const BatchRamp ramp = ramp_of(config.batch);
        if (ramp.samples > 0) {
          RampLists(config, BatchSizes(config.batch.global_batch_size, ramp, 0, 0));
        }
        plan = make_plan(config, architecture);
      }
      if (launch.leads && (memory || loaded.fits_none > 0)) {
        fit = fit_memory(config, architecture, memory.value_or(loaded.fits_none));
      }
      launch.start->agree({});
      launch.start->done();
      if (!launch.leads) return 0;
      if (options->format == "json") {
        nlohmann::ordered_json json = plan_json(*plan);
        if (fit) json["memory"] = fit_json(*fit);
        add_notes(json, ineffective_key_notes(loaded));
        fmt::print("{}\n", json.dump(2));
      } else {
        fmt::print("{}{}\n", fit ? fit_text(*fit) : "", plan_text(*plan, options->all_ranks));
      }
      return memory && !fit->fits() ? 2 : 0;
    };
  });
}

}  // namespace trident::app
