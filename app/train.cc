// `train`: trains a model, or with --dry-run prints the config and the plan.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/options.h"
#include "app/printer.h"
#include "app/stop_signals.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/process/process.h"
#include "base/process/terminal.h"
#include "planner/plan/plan.h"
#include "run/measurement/bench.h"
#include "run/startup/training_job.h"
#include "settings/ineffective_keys.h"

namespace trident::app {
namespace {

struct TrainOptions {
  ConfigRequest config;
  bool dry_run = false, quiet = false, progress = false;
  std::string format = "text", machine;
  std::optional<std::int64_t> pretended_world;
  int rank = 0, iterations = 3;
};

// Prints the filled-in config on stdout and the plan on stderr; with "json" both in one document.
void print_dry_run(const TrainOptions& options, const TrainingInputs& inputs, const Plan& plan) {
  for (const std::string& path : inputs.datasets.untokenized) {
    print_error(path + ": is not tokenized yet: how many samples it has is not known");
  }
  const std::string config = config_to_json(inputs.config, inputs.written);
  if (options.format == "json") {
    const std::vector<std::string> reported = ineffective_key_notes(inputs.config, inputs.written);
    const std::string notes =
        reported.empty() ? "" : ", \"notes\": " + json_text(nlohmann::ordered_json(reported), 2);
    fmt::print("{{\"config\": {}, \"plan\": {}{}}}\n", config, json_text(plan_json(plan), 2),
               notes);
  } else {
    fmt::print("{}", config);
    fmt::print(stderr, "{}", plan_text(plan));
  }
}

// The command line, for people who find the run's folders in use.
std::string command_of(const TrainOptions& options) {
  std::string command = "trident train " + options.config.path;
  for (const std::string& one : options.config.set) command += " --set " + one;
  return command;
}

// The text or JSON document to print after the run.
std::string result_text(const TrainOptions& options, const TrainingJob& job,
                        const TrainingSummary& summary) {
  if (options.quiet) return "";
  if (options.format != "json") {
    return summary.history.empty() ? ""
                                   : closing_text(job, summary, terminal_of(STDOUT_FILENO).columns);
  }
  nlohmann::ordered_json document = closing_json(job, summary);
  add_notes(document, ineffective_key_notes(job.inputs.config, job.inputs.written));
  return json_text(document) + "\n";
}

// Doesn't announce that weights are saved: mpirun also ends ranks by SIGTERM, and the run reports a
// save itself.
void print_stop(Printer& printer, const char* signal, bool begun, bool saves) {
  if (begun) {
    printer.error(fmt::format("{}: stopping{} (once more: at once)", signal,
                              saves ? "" : "; there is no checkpoint.save"));
  } else {
    print_error(std::string(signal) + ": stopped before the start: no run has begun");
  }
}

// Runs one rank of a world whose other ranks don't exist.
int pretend(TrainOptions options, const Launch& launch) {
  if (launch.mpi) {
    throw RequestError("--pretend-world: runs one rank by itself; start it without mpirun or srun");
  }
  launch.start->join("train --pretend-world");
  options.config.ranks = options.pretended_world;
  const LoadedConfig loaded = load_reported(options.config, launch);
  if (loaded.parallel_is_auto) {
    throw RequestError(
        "--pretend-world: parallel is \"auto\": give the layout; trident search finds one");
  }
  const Config& config = loaded.config;
  launch.start->done();
  std::optional<Machine> machine;
  if (!options.machine.empty())
    machine = parse_machine(read_file(options.machine), options.machine);
  need_writable("--machine", options.machine);
  const auto result =
      pretend_rank(config, options.rank, options.iterations, machine ? &*machine : nullptr);
  if (machine) write_file_atomic(options.machine, machine_text(*machine));
  fmt::print("{}",
             options.format == "json" ? json_text(result, 2) + "\n" : pretend_rank_text(result));
  return 0;
}

int train(const TrainOptions& options, const Launch& launch) {
  ignore_closed_pipes();
  launch.start->join(options.dry_run ? "train --dry-run" : "train");
  Printer printer;
  bool saves = false;  // set before signals.begin()
  StopSignals signals([&](const char* signal, bool begun) {
    if (launch.leads) print_stop(printer, signal, begun, saves);
  });
  ConfigRequest request = options.config;
  choose_layouts_here(request, launch);
  const LoadedConfig loaded =
      options.quiet ? load(request, launch) : load_reported(request, launch);
  if (!loaded.why_layout.empty() && !options.quiet) {
    const bool document = options.dry_run || options.format == "json";
    fmt::print(document ? stderr : stdout, "{}\n", loaded.why_layout);
    std::fflush(stdout);
  }
  TokenizingLine tokenizing(printer, terminal_of(STDERR_FILENO).live && !launch.mpi);
  TextAccess texts;
  texts.writes = !options.dry_run;
  texts.tokenizing.threads = launch.cores;
  if (!options.quiet) {
    texts.tokenizing.progress = [&](const TokenizingProgress& p) { tokenizing.show(p); };
  }
  texts.report = [&](const std::string& line) { printer.error(line); };
  const TrainingJob job = prepare_job(loaded, launch, texts);
  const Config& config = job.inputs.config;
  if (options.dry_run) {
    if (launch.leads) print_dry_run(options, job.inputs, *job.plan);
    return 0;
  }
  saves = !config.checkpoint.save.empty();
  signals.begin();
  const ProductRate rate = measure_product_rate(job, rates_file(launch));

  // mpirun forwards output line by line, even to a terminal, so no line can be redrawn.
  const bool json = options.format == "json";
  Progress progress(printer, config, !launch.mpi && terminal_of(STDOUT_FILENO).live, json);
  JobHooks hooks{
      .rate = rate, .command = command_of(options), .version = version(), .on_saved = [&] {
        signals.finish();
      }};
  hooks.trainer.stop = &signals.stop();
  if (launch.leads && !json && !options.quiet) {
    printer.out(wrapped(opening_text(job), terminal_of(STDOUT_FILENO).columns, 2));
  }
  if (launch.leads && (json ? options.progress : !options.quiet)) {
    hooks.trainer.on_iteration = [&](IterationMetrics& m) { progress.show(m); };
  }
  if (launch.leads && !json && !job.crowded.empty()) printer.error(job.crowded);
  hooks.trainer.quiet = options.quiet;
  if (launch.leads) {
    hooks.trainer.on_message = [&](const std::string& text) { printer.error(text); };
  }
  hooks.on_summary = [&](const TrainingSummary& summary) {
    const std::string text = result_text(options, job, summary);
    if (!text.empty()) printer.out(text);
  };
  const TrainingSummary summary = run_job(job, hooks);
  printer.drain();  // a signal can still end a wait for a slow reader
  return summary.stopped || signals.stop() ? 130 : 0;
}

}  // namespace

void add_train(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("train", "Train a model");
  auto options = std::make_shared<TrainOptions>();
  add_config_options(*command, options->config);
  command->add_flag("--dry-run", options->dry_run,
                    "Check, print the filled-in config and the plan, and stop");
  add_format_option(*command, options->format);
  command->add_flag("--progress", options->progress,
                    "With --format json: also lines of progress, on standard error");
  command->add_flag("--quiet", options->quiet, "Print problems only")
      ->excludes("--dry-run")
      ->excludes("--format");
  auto* pretended =
      command
          ->add_option("--pretend-world", options->pretended_world,
                       "Run only --rank of a world of this size: times of its kernels, its "
                       "memory; messages of other ranks are made up")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
          ->excludes("--dry-run")
          ->excludes("--quiet")
          ->excludes("--ranks");
  command->add_option("--rank", options->rank, "The rank of the pretended world")
      ->needs(pretended)
      ->capture_default_str();
  command
      ->add_option("--iterations", options->iterations,
                   "Iterations of the pretended rank; the fastest counts")
      ->check(CLI::Range(1, 100000))
      ->needs(pretended)
      ->capture_default_str();
  command
      ->add_option("--machine", options->machine,
                   "Path of a machine file that gets the pretended rank's kernels, for simulate")
      ->needs(pretended);
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      return options->pretended_world ? pretend(*options, launch) : train(*options, launch);
    };
  });
}

}  // namespace trident::app
