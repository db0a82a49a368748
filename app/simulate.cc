// `simulate`: predicts a training step on a machine, which needn't be at hand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/units.h"
#include "engine/setup/registry.h"
#include "planner/machine/link_table.h"
#include "planner/simulation/chakra.h"
#include "planner/simulation/step_simulation.h"

namespace trident::app {
namespace {

// Sets a link from a table of measurements. Measured rates include the links' efficiency, so
// divides by it. `adapters` is the number of adapters of a node, 0 if unknown: the table of a pair
// of ranks measures one adapter.
void take_table(const std::string& path, const Machine& machine, Machine::Link& link,
                int adapters) {
  if (path.empty()) return;
  constexpr std::uint64_t most = std::uint64_t{16} << 20;
  const LinkTable table = read_link_table(
      read_file(path, most), path, {link.bandwidth * machine.efficiency.links, link.latency});
  link = table.link;
  link.bandwidth /= machine.efficiency.links;
  if (!table.of_a_pair) return;
  link.bandwidth *= std::max(1, adapters);
  if (adapters == 0) {
    print_error(
        fmt::format("{}: measures one adapter; give the number of a node's adapters by --adapters",
                    printable(path)));
  }
}

}  // namespace

void add_simulate(CLI::App& app, const Launch& launch, Action& action) {
  struct Options {
    ConfigRequest config;
    std::string machine, assume, straggler, slow_link, format = "text", out, form;
    std::string inside_table, across_table;
    int adapters = 0;
    RunPlan run;
  };
  auto* command = app.add_subcommand("simulate", "Predict a step on a machine of configs/machines");
  auto options = std::make_shared<Options>();
  add_config_options(*command, options->config);
  command
      ->add_option("--machine", options->machine,
                   "A machine's JSON file, or the name of one in configs/machines")
      ->required();
  command->add_option(
      "--assume", options->assume,
      "Differences of another program from this one, joined by commas: gradients=after, "
      "tensor_sums=apart, transfers=apart, attention=in_memory, kernels=apart, or all "
      "that megatron_2021 did; docs/simulate.md has the list");
  command->add_option(
      "--straggler", options->straggler,
      "FACTOR[:PLACE]: devices at a place of the pipeline are slower by this factor");
  command->add_option("--slow-link", options->slow_link,
                      "FACTOR[:PLACE]: the link of the node at a place of the pipeline is slower");
  command->add_option("--inside-table", options->inside_table,
                      "Output of nccl-tests or OSU's benchmarks: links inside a node");
  auto* across = command->add_option("--across-table", options->across_table,
                                     "The same over several nodes: a node's link to others");
  command
      ->add_option("--adapters", options->adapters,
                   "Number of a node's adapters; osu_bw and sendrecv_perf measure one of them")
      ->check(CLI::Range(1, 1024))
      ->needs(across);
  const auto positive = CLI::Range(1e-9, 1e18);
  command
      ->add_option("--tokens", options->run.tokens,
                   "Tokens of a complete run: predicts days and device-hours")
      ->check(positive);
  auto* mtbf =
      command
          ->add_option(
              "--mtbf-hours", options->run.mtbf_hours,
              "Hours between failures of the whole job: predicts goodput, and how often to save")
          ->check(positive);
  command
      ->add_option("--checkpoint-seconds", options->run.checkpoint_seconds,
                   "Seconds that training waits for a checkpoint")
      ->check(positive)
      ->needs(mtbf);
  command
      ->add_option("--restart-seconds", options->run.restart_seconds,
                   "Seconds from a failure to the next step")
      ->check(positive)
      ->needs(mtbf);
  command->add_option("--format", options->format, "text, json, svg or chrome (a timeline)")
      ->check(CLI::IsMember({"text", "json", "svg", "chrome"}))
      ->capture_default_str();
  auto* out = command->add_option("--out", options->out, "A file instead of standard output");
  command
      ->add_option("--export", options->form,
                   "chakra: each rank's step in MLCommons Chakra's form, as OUT.RANK.et, and its "
                   "process groups in OUT.groups.json, for ASTRA-sim")
      ->check(CLI::IsMember({"chakra"}))
      ->needs(out)
      ->excludes("--assume", "--straggler", "--slow-link", "--tokens", "--mtbf-hours",
                 "--inside-table", "--across-table", "--format");
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      launch.start->join("simulate");
      need_writable("--out", options->out);
      Machine machine = read_machine(options->machine, machines_folder());
      take_table(options->inside_table, machine, machine.inside, 1);
      take_table(options->across_table, machine, machine.across, options->adapters);
      ConfigRequest request = options->config;
      plan_for(machine, request);
      request.layouts->assume = options->assume;
      const LoadedConfig loaded =
          load_reported(request, launch, static_cast<std::int64_t>(machine.device.memory));
      const Config& config = loaded.config;
      if (!loaded.why_layout.empty()) fmt::print(stderr, "{}\n", loaded.why_layout);
      Assumptions assumptions = Assumptions::of(config.zero_optimization, config.parallel);
      if (!options->assume.empty()) assumptions.assume(options->assume);
      if (options->run.mtbf_hours > 0 && !(options->run.checkpoint_seconds > 0)) {
        throw RequestError("--mtbf-hours: needs --checkpoint-seconds, the cost of a save");
      }
      const bool timeline = options->format == "svg" || options->format == "chrome";
      if (timeline && (options->run.tokens > 0 || options->run.mtbf_hours > 0)) {
        throw RequestError(
            "--tokens, --mtbf-hours: a timeline doesn't show their results; use --format text "
            "or json");
      }
      WhatIf what_if;
      if (!options->straggler.empty()) {
        WhatIf::read("--straggler", options->straggler, what_if.straggler, what_if.straggler_place);
      }
      if (!options->slow_link.empty()) {
        WhatIf::read("--slow-link", options->slow_link, what_if.slow_link, what_if.slow_place);
        if (config.world_size() <= machine.devices_per_node) {
          throw RequestError(fmt::format(
              "--slow-link: {} on one node of {}; none uses its link to others",
              config.world_size() == 1 ? "the only rank is"
                                       : fmt::format("all {} ranks are", config.world_size()),
              machine.name));
        }
      }
      std::string text;
      if (launch.leads && !options->form.empty()) {
        const ChakraFiles files =
            write_chakra(config, *architecture_of(config), machine, options->out);
        text = fmt::format("wrote {}.RANK.et of {}, {} nodes in {}, and {}.groups.json\n",
                           options->out, counted(files.ranks, "rank"), files.nodes,
                           bytes_text(static_cast<double>(files.bytes)), options->out);
      } else if (launch.leads) {
        // Several ranks may share the cores of a CPU; sharing a GPU isn't predicted.
        const bool shares = !machine.device.gpu && is_crowded(config.world_size(), machine);
        const SimulatedStep step = (shares ? simulate_crowded : simulate_step)(
            config, *architecture_of(config), machine, assumptions, what_if);
        text = drawn(step, machine, options->format, options->run);
      }
      launch.start->agree({});
      launch.start->done();
      if (!launch.leads) return 0;
      if (options->out.empty() || !options->form.empty()) {
        fmt::print("{}", text);
      } else {
        write_file(options->out, text);
      }
      return 0;
    };
  });
}

}  // namespace trident::app
