#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/options.h"
#include "app/printer.h"
#include "app/stop_signals.h"
#include "core/error.h"
#include "core/json.h"
#include "core/process.h"
#include "core/request_problems.h"
#include "core/threads.h"
#include "training/engine/rank_model.h"
#include "training/plan/fit.h"
#include "training/plan/plan.h"
#include "training/report/product_rate.h"
#include "training/run/agreement.h"
#include "training/run/devices.h"
#include "training/run/generate.h"
#include "training/run/run_folder.h"
#include "training/run/summary.h"
#include "training/run/trainer.h"
#include "training/setup/from_config.h"
#include "training/setup/kinds.h"

namespace trident::app {
namespace {

// Of the saved weights, where the whole model takes no more memory on one rank than the run did.
std::string sample_text(const Config& config, const Plan& plan) {
  const bool bytes = config.data.tokenizer.type == "byte" && config.model.vocab_size == 256;
  if (config.checkpoint.save.empty() || !bytes) return "";
  std::int64_t peak = 0;
  for (const PlanRank& rank : plan.ranks) peak = std::max(peak, rank.peak_bytes);
  if (saved_bytes(config, plan.parameters) > peak) return "";
  std::string text;
  try {
    const Devices devices(config);
    run_local(1, {}, [&](Transport& transport) {
      Context context(devices.of(0), 1);
      const std::string prompt = "And ";
      const auto tokens =
          generate(context, transport, built_in_architectures(), config.checkpoint.save,
                   std::vector<std::int32_t>(prompt.begin(), prompt.end()), {.tokens = 300});
      for (const std::int32_t token : tokens) {
        const auto c = static_cast<char>(token);
        // Half-trained weights give bytes that would upset a terminal.
        text += (c >= ' ' && c < 127) || c == '\n' ? c : '?';
      }
    });
  } catch (const std::exception& error) {
    return std::string("none: ") + error.what();  // the run has ended well all the same
  }
  return text;
}

// On a thread of its own: OpenMP keeps a team for each thread that had one, and with more threads
// in teams than cores the ranks' own would sleep at the end of every loop.
double measure_product_rate(const Config& config, const Launch& launch, const Devices& devices) {
  const DType dtype = dtype_of(config.precision.dtype);
  const std::int64_t processes = launch.mpi ? launch.ranks : 1;
  const auto gpus = static_cast<double>(
      launch.mpi ? processes : std::min<std::int64_t>(devices.count(), config.world_size()));
  if (const auto peak = devices.peak(config.precision)) return *peak * gpus;
  const std::int64_t ranks = launch.mpi ? 1 : config.world_size();
  const auto threads =
      std::min<std::int64_t>(ranks * config.runtime.threads_per_rank, launch.cores);
  return std::async(std::launch::async,
                    [&] {
                      Context context(devices.of(launch.local_rank), static_cast<int>(threads),
                                      kernel_options(config));
                      return product_rate(context, dtype, usual_product(context, dtype), 0.3) *
                             gpus;
                    })
      .get();
}

// What MFU is a share of, and what ranks share, for the closing summary.
Shared sharing_text(const Config& config, const Launch& launch, const Devices& devices) {
  const std::int64_t ranks = ranks_on_gpus(launch, config.world_size(), devices.count());
  if (devices.gpu().empty()) {
    const std::int64_t here = launch.mpi ? launch.local_ranks : config.world_size();
    const std::int64_t threads = here * config.runtime.threads_per_rank;
    return {"of this machine's product rate",
            threads > launch.cores
                ? fmt::format("{} rank threads share {} cores: by the clock, waiting for a core "
                              "looks like work",
                              threads, launch.cores)
                : ""};
  }
  return {
      devices.peak(config.precision) ? "of the peak of " + devices.gpu()
                                     : "of the product rate measured on " + devices.gpu(),
      ranks > devices.count()
          ? fmt::format("{} ranks share {} GPU(s): waiting for the others' kernels looks like work",
                        ranks, devices.count())
          : ""};
}

// A run with more threads than cores goes on, but nobody wants it. Under MPI a line from each host,
// on rank 0; collective.
std::string crowded_text(const Config& config, const Launch& launch, const Devices& devices) {
  const bool crosses = launch.mpi && launch.ranks > 1;
  const std::int64_t ranks = launch.mpi ? launch.local_ranks : config.world_size();
  const std::int64_t threads = config.runtime.threads_per_rank;
  std::string own;
  if (devices.gpu().empty() && threads > 1 && ranks * threads > launch.cores &&
      launch.local_rank == 0) {
    own = fmt::format(
        "warning: config: /runtime/threads_per_rank: {} ranks of {} threads share {} cores of {}, "
        "so threads sleep where they would wait for each other; use {}",
        ranks, threads, launch.cores, crosses ? host_name() : "this machine",
        std::max<std::int64_t>(1, launch.cores / ranks));
  }
  if (!crosses) return own;
  const auto lines = [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) {
      if (!one.empty()) text += (text.empty() ? "" : "\n") + one;
    }
    return text;
  };
  return launch.start->exchange(own, lines, {});
}

// What would fit, where a device has no memory left.
std::string what_fits(const Config& config, const Architecture& architecture, const Launch& launch,
                      const Devices& devices) {
  const auto memory = devices.memory(ranks_on_gpus(launch, config.world_size(), devices.count()));
  return memory ? "\n" + fit_text(fit_memory(config, architecture, *memory / 10 * 9)) : "";
}

// Refuses ranks that would compute something else than the others, before anything is written.
void compare_ranks(const Config& config, const Devices& devices, const Launch& launch) {
  Rendezvous& start = *launch.start;
  if (!launch.mpi || launch.ranks < 2) return;
  std::vector<Fingerprint> alike = config_fingerprints(config);
  const auto machine = machine_fingerprints(devices, launch.environment);
  alike.insert(alike.end(), machine.begin(), machine.end());
  start.agree(alike);
  const std::vector<std::string> hosts = start.hosts();
  std::vector<int> host_of;
  for (const std::string& host : hosts) {
    host_of.push_back(
        static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin()));
  }
  nodes_of(host_of, static_cast<int>(config.runtime.ranks_per_node), hosts);
  const std::vector<InputFile> files = input_files(config);
  // Slow disks give 10 MiB/s; of each file at most 1 GiB is read.
  const std::chrono::seconds longer(100 * files.size());
  start.agree(file_fingerprints(files, launch.rank, [&](const auto& own, const auto& answer) {
    return start.exchange(own, answer, longer);
  }));
}

struct TrainOptions {
  ConfigOptions config;
  bool dry_run = false;
  std::string format = "text";
};

// Everything that can be known before a run starts, all problems at once. Writes nothing.
TrainingInputs checked_inputs(const LoadedConfig& loaded, const Launch& launch,
                              std::optional<Devices>& devices) {
  const Config& config = loaded.config;
  TrainingInputs inputs;
  RequestProblems problems;
  problems.collect([&] { check_launch(config, launch); });
  problems.collect([&] {
    devices.emplace(config);
    const std::int64_t here = ranks_on_gpus(launch, config.world_size(), devices->count());
    const TransportRules& transport = transport_rules(config);
    if (transport.gpu_for_each_rank && here > devices->count()) {
      const auto others = names_where(config.rules->transports, [](const TransportRules& kind) {
        return kind.gpu && !kind.gpu_for_each_rank;
      });
      throw RequestError(fmt::format(
          "config: /runtime/transport: \"{}\" needs a GPU for each rank, this machine has {} for "
          "{} ranks{}",
          transport.name, devices->count(), here,
          others.empty() ? "" : fmt::format("; use \"{}\"", others.front())));
    }
  });
  problems.collect([&] {
    const std::int64_t ranks_here = launch.mpi ? 1 : config.world_size();
    need_threads(ranks_here * config.runtime.threads_per_rank,
                 fmt::format("config: /runtime/threads_per_rank: {} rank(s) of {} in one process",
                             ranks_here, config.runtime.threads_per_rank));
  });
  problems.collect([&] { inputs = prepare_training(loaded); });
  if (launch.leads) problems.collect([&] { check_output(config, 0); });  // and with its bytes later
  problems.raise();
  return inputs;
}

// The filled-in config alone on stdout, the plan on stderr; with "json" both in one document.
void print_dry_run(const TrainOptions& options, const TrainingInputs& inputs, const Plan& plan) {
  const std::string config = config_to_json(inputs.config, inputs.written);
  if (options.format == "json") {
    fmt::print("{{\"config\": {}, \"plan\": {}}}\n", config, json_text(plan_json(plan), 2));
  } else {
    fmt::print("{}", config);
    fmt::print(stderr, "{}", plan_text(plan));
  }
}

// For whoever finds the run's folders in use.
std::string command_of(const TrainOptions& options) {
  std::string command = "trident train " + options.config.path;
  for (const std::string& one : options.config.set) command += " --set " + one;
  return command;
}

// What the ranks did, to stdout.
void print_summary(Printer& printer, const TrainOptions& options, const TrainingSummary& summary,
                   const std::function<std::string()>& closing) {
  if (options.format == "json") {
    nlohmann::ordered_json result{{"iterations", 0}, {"loss", nullptr}};
    if (!summary.history.empty()) {
      result["iterations"] = summary.history.back().iteration;
      result["loss"] = summary.history.back().loss;  // null where not finite
    }
    result["stopped"] = summary.stopped;
    printer.out(json_text(result) + "\n");
  } else if (!summary.history.empty()) {
    printer.out(closing());
  }
}

int train(const TrainOptions& options, const Launch& launch) {
  ignore_closed_pipes();
  launch.start->join(options.dry_run ? "train --dry-run" : "train");
  Printer printer;
  bool saves = false;  // known when the signals' begin() is called
  StopSignals signals([&](const char* signal, bool begun) {
    if (launch.leads && begun) {
      // mpirun ends ranks by SIGTERM, too: whether weights are saved is said where they are.
      printer.error(fmt::format("{}: stopping{} (once more: at once)", signal,
                                saves ? "" : "; there is no checkpoint.save"));
    } else if (launch.leads) {
      print_error(std::string(signal) + ": stopped before the start: nothing is written");
    }
  });
  const LoadedConfig loaded = load(options.config, launch);
  std::optional<Devices> found;
  TrainingInputs inputs = checked_inputs(loaded, launch, found);
  const Devices& devices = *found;
  const Config& config = inputs.config;
  std::int64_t bytes = 0;  // of the saved weights
  if (launch.leads) {
    inputs.plan = make_plan(config, *inputs.architecture, inputs.schedule);
    bytes = saved_bytes(config, inputs.plan->parameters);
    check_output(config, bytes);
  }
  compare_ranks(config, devices, launch);
  const std::string crowded = crowded_text(config, launch, devices);
  launch.start->done();
  if (options.dry_run) {
    if (launch.leads) print_dry_run(options, inputs, *inputs.plan);
    return 0;
  }
  saves = !config.checkpoint.save.empty();
  signals.begin();
  std::optional<RunFolders> folders;
  inputs.product_rate = measure_product_rate(config, launch, devices);

  // mpirun passes output on by lines, whatever it writes to.
  Progress progress(printer, config, !launch.mpi && isatty(STDOUT_FILENO) != 0);
  const bool quiet = !launch.leads || options.format == "json";
  const auto begin = [&] {
    folders.emplace(config, bytes, command_of(options));
    return folders->run_id();
  };
  TrainerHooks hooks{
      .on_begin = begin, .still_held = [&] { folders->require_held(); }, .stop = &signals.stop()};
  if (!quiet) {
    printer.out(fmt::format(
        "{}: {} ranks ({}), {}, transport {}, {} thread(s) a rank\n"
        "device: {}{}\n",
        config.model.architecture, config.world_size(), titles_of(config.parallel.axes()),
        schedule_name(config), config.runtime.transport, config.runtime.threads_per_rank,
        devices.text(), loaded.why_cpu.empty() ? "" : " (" + loaded.why_cpu + ")"));
    if (!crowded.empty()) printer.error(crowded);
    hooks.on_iteration = [&](IterationMetrics& m) { progress.show(m); };
  }
  if (launch.leads) hooks.on_message = [&](const std::string& text) { printer.error(text); };
  TrainingSummary summary;
  // Under MPI before this rank ends: the others wait for it as long as it lives.
  const auto conclude = [&] {
    if (!launch.leads) return;
    print_summary(printer, options, summary, [&] {
      const std::string sample = summary.stopped ? "" : sample_text(config, *inputs.plan);
      return closing_text(config, *inputs.plan, summary, sample,
                          sharing_text(config, launch, devices));
    });
  };
  if (const TransportKind& kind = transport_of(config); launch.mpi && kind.run_process != nullptr) {
    kind.run_process(transport_options(config), [&](Transport& transport) {
      summary = train_rank(inputs, transport, devices.of(launch.local_rank), hooks);
      conclude();
    });
  } else {
    try {
      summary = train_local(inputs, devices, hooks);
    } catch (const OutOfMemory& error) {
      throw OutOfMemory(error.what() + what_fits(config, *inputs.architecture, launch, devices));
    }
    signals.finish();
    conclude();
  }
  signals.finish();
  printer.drain();  // while a signal can still end a wait for whoever reads it
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
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return train(*options, launch); };
  });
}

}  // namespace trident::app
