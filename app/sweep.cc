// `sweep`: runs a config in many layouts.
#include "planner/sweep/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "app/options.h"
#include "app/stop_signals.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/units.h"
#include "base/utf8.h"
#include "core/available_memory.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "kernels/cuda_device.h"
#include "planner/sweep/machine_fit.h"
#include "report/sweep_report.h"
#include "run/measurement/measured.h"

namespace trident::app {
namespace {

struct SweepOptions {
  ConfigRequest config;
  std::string grid, out = "sweep", scaling = "strong", mpirun = "mpirun", machine, measure, fit,
                    format = "text";
  int iterations = 5, warm_up = 2, repeats = 3;
  double timeout = 600;
  bool overwrite = false, retry = false, dry_run = false;
};

nlohmann::ordered_json about_this_machine(const Config& config, const Launch& launch) {
  const Devices devices(config);
  return {{"host", host_name()},
          {"processor", processor_name()},
          {"cores", launch.cores},
          {"device", devices.text()},
          {"versions", bench::versions_json(devices)}};
}

// RequestError unless all points have the same number of threads, as bench machine requires.
void need_like_threads(const SweepRequest& request) {
  if (request.weak) {
    throw RequestError("--measure: not with weak scaling, whose batch grows; give --machine");
  }
  const auto written = nlohmann::json::parse(request.base.written);
  const nlohmann::json::json_pointer threads("/runtime/threads_per_rank");
  const bool given = written.contains(threads) && written[threads].is_number();
  if (given && std::none_of(request.grid.begin(), request.grid.end(), [](const GridKey& key) {
        return key.path == "runtime.threads_per_rank" || key.path == "runtime.device";
      })) {
    return;
  }
  throw RequestError(
      "--measure: kernels are measured for one number of threads: give a number as "
      "runtime.threads_per_rank in the config, and neither that nor runtime.device in the grid");
}

// RequestError unless the path is UTF-8, since the runs get it by --set.
void need_utf8(const std::string& option, const std::string& path) {
  if (invalid_utf8(path) != std::string::npos) {
    throw RequestError(fmt::format("{}: {}: needs a path in UTF-8", option, printable(path)));
  }
}

// The text of an existing machine's file, whose links between GPUs are used because a sweep doesn't
// measure them; "" where no such links are needed.
std::string known_links(const std::string& file, const SweepRequest& request) {
  if (request.base.config.runtime.device != "cuda") return "";
  if (std::filesystem::exists(file)) {
    Machine machine = parse_machine(read_file(file), file);
    const std::string device = bench::device_name(Devices(request.base.config), 1);
    if (!machine.device.kernels.empty()) bench::need_same_device(machine, device, "--measure");
    machine.device.name = device;
    return machine_text(machine);
  }
  if (request.load.gpus <= 1) return "";
  throw RequestError(fmt::format(
      "--measure: {}: links between GPUs aren't measured; let it be a machine's file that has them",
      printable(file)));
}

SweepRequest request_of(const SweepOptions& options, const Launch& launch) {
  SweepRequest request;
  request.base = load(options.config, launch);
  request.load = load_options(request.base.config.batch, request.base.config.runtime, launch);
  request.grid = parse_grid(grid_text(options.grid), request.base.config.parallel);
  if (options.out.empty()) throw RequestError("--out: needs the path of a folder");
  request.out = std::filesystem::absolute(options.out).lexically_normal().string();
  need_utf8("--out", request.out);
  request.overwrite = options.overwrite;
  request.retry = options.retry;
  request.iterations = options.iterations;
  request.warm_up = options.warm_up;
  request.repeats = options.repeats;
  request.weak = options.scaling == "weak";
  request.timeout = options.timeout;
  request.program = std::filesystem::read_symlink("/proc/self/exe");
  std::istringstream words(options.mpirun);
  for (std::string word; words >> word;) request.mpirun.push_back(word);
  request.memory = available_memory();
  request.rank_memory = [&launch](const Config& config) { return free_memory(config, launch); };
  request.measure = !options.measure.empty();
  need_writable("--measure", options.measure);
  need_writable("--fit", options.fit);
  if (request.measure) {
    need_like_threads(request);
    request.known = known_links(options.measure, request);
  } else if (!options.machine.empty()) {
    request.machine = read_machine(options.machine, machines_folder());
  } else if (!options.fit.empty()) {
    request.machine = parse_machine(read_file(options.fit), options.fit);
  }
  return request;
}

std::size_t predicted_of(const SweepPlan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.points.begin(), plan.points.end(),
                    [](auto& point) { return point.simulated_seconds.has_value(); }));
}

// The number of predicted points that can be compared with their runs. The replayed step of an
// asynchronous schedule can't.
std::size_t comparable(const SweepPlan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.points.begin(), plan.points.end(), [](auto& point) {
        return point.simulated_seconds &&
               !(point.replayed && schedule_of(point.config).asynchronous());
      }));
}

void say_not_predicted(const SweepPlan& plan) {
  const std::size_t missing = plan.points.size() - predicted_of(plan);
  if (plan.not_predicted.empty() || missing == 0) return;
  const auto& [label, reason] = plan.not_predicted.front();
  print_error(fmt::format("trident sweep: no prediction for {} of {} points; {}: {}", missing,
                          plan.points.size(), label, reason));
}

// Prints each note about keys without effect once.
void report_notes(const SweepPlan& plan) {
  std::set<std::string> printed;
  for (const SweepPoint& point : plan.points) {
    for (const std::string& note : point.notes) {
      if (printed.insert(note).second) print_error(point.label + ": " + note);
    }
  }
}

nlohmann::ordered_json json_of(const SweepPlan& plan) {
  using Json = nlohmann::ordered_json;
  Json points = Json::array(), invalid = Json::array(), same = Json::array();
  for (const SweepPoint& point : plan.points) {
    points.push_back({{"point", point.label},
                      {"set", point.set},
                      {"ranks", point.config.world_size()},
                      {"planned_memory", point.planned_peak},
                      {"notes", point.notes}});
  }
  for (const auto& [label, reason] : plan.invalid) {
    invalid.push_back({{"point", label}, {"reason", reason}});
  }
  for (const auto& [label, other] : plan.same) same.push_back({{"point", label}, {"as", other}});
  return {{"points", points}, {"invalid", invalid}, {"same", same}};
}

int list_points(const SweepPlan& plan, bool json) {
  if (json) {
    fmt::print("{}\n", json_of(plan).dump(2));
    return 0;
  }
  for (const SweepPoint& point : plan.points) {
    fmt::print("{}: {}, {} a rank\n", point.label, counted(point.config.world_size(), "rank"),
               bytes_text(point.planned_peak));
  }
  for (const auto& [label, reason] : plan.invalid) fmt::print("{}: invalid: {}\n", label, reason);
  for (const auto& [label, other] : plan.same) fmt::print("{}: runs as {}\n", label, other);
  return 0;
}

void write_reports(const std::string& out, const nlohmann::ordered_json& result) {
  write_file_atomic(out + "/sweep.json", result.dump(1) + "\n");
  write_file_atomic(out + "/sweep.csv", sweep_csv(result));
  write_file_atomic(out + "/report.html", sweep_report(result));
}

int sweep(const SweepOptions& options, const Launch& launch) {
  if (launch.mpi) {
    throw RequestError(
        "trident sweep: starts its runs itself, under mpirun those whose runtime.transport needs "
        "processes; "
        "start it once, without mpirun or srun");
  }
  StopSignals signals([](const char* name, bool) {
    print_error(
        fmt::format("trident sweep: {}: stopping; the same command resumes from here", name));
  });
  launch.start->join("sweep");
  SweepRequest request = request_of(options, launch);
  launch.start->done();
  SweepPlan plan = plan_sweep(request);
  say_not_predicted(plan);
  report_notes(plan);
  if (options.dry_run) return list_points(plan, options.format == "json");
  if (!options.fit.empty() && request.machine) need_points_to_fit(comparable(plan));
  const bool text = options.format == "text";
  request.stop = &signals.stop();
  request.report = [text](const std::string& line) {
    fmt::print(text ? stdout : stderr, "{}\n", line);
    std::fflush(text ? stdout : stderr);
  };
  signals.begin();
  const nlohmann::ordered_json about = about_this_machine(request.base.config, launch);
  nlohmann::ordered_json result = run_sweep(request, plan, about);
  write_reports(request.out, result);
  if (request.measure && result["complete"].get<bool>()) {
    // All points have been run, so this only makes the document again, with predictions.
    request.overwrite = request.retry = request.measure = false;
    request.machine = measured_machine(request);
    write_file_atomic(options.measure, machine_text(*request.machine));
    plan = plan_sweep(request);
    result = run_sweep(request, plan, about);
    write_reports(request.out, result);
  }
  if (!options.fit.empty() && result["complete"].get<bool>()) {
    write_file_atomic(options.fit, machine_text(fit_sweep(result, plan, *request.machine)));
    write_reports(request.out, result);
  }
  signals.finish();
  if (text) {
    fmt::print("{}{}wrote {}/report.html, sweep.csv and sweep.json{}{}\n", sweep_text(result),
               agreement_text(result), options.out, result.contains("fit") ? "; " : "",
               result.contains("fit") ? options.fit : "");
  } else {
    fmt::print("{}\n", result.dump(2));
  }
  if (!result["complete"].get<bool>()) return 130;
  for (const auto& point : result["points"]) {
    if (point["status"] == "ok") return 0;
  }
  print_error("trident sweep: no point ran to its end");
  return 3;
}

}  // namespace

void add_sweep(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("sweep", "Run a config in many layouts and compare them");
  auto options = std::make_shared<SweepOptions>();
  add_config_options(*command, options->config);
  add_format_option(*command, options->format);
  command
      ->add_option("--grid", options->grid,
                   "Values to combine: \"tp=1,2 pp=1,2 dp=1,2 chunks=1,2 schedule=1f1b,zb_h1 "
                   "zero=0,1,3 micro_batch_size=1,2\", config keys with dots too; or a JSON file "
                   "of lists by key")
      ->required();
  command
      ->add_option("--out", options->out,
                   "Folder for reports and runs; an unfinished sweep there is continued")
      ->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Start again where --out holds a sweep");
  command->add_flag("--retry", options->retry, "Repeat failed runs");
  command->add_option("--iterations", options->iterations, "Timed iterations of a run")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--warm-up", options->warm_up, "Iterations before them")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "Runs of each point, interleaved")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--scaling", options->scaling,
                   "strong: the global batch stays; weak: it grows with the copies of the model")
      ->check(CLI::IsMember({"strong", "weak"}))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "Seconds that a run may take")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--mpirun", options->mpirun,
                   "Starts the processes of configs whose transport needs them")
      ->capture_default_str();
  auto* measure = command->add_option(
      "--measure", options->measure,
      "Measures this machine before each repeat (bench machine), predicts by the median of each "
      "kernel, and writes that machine into this file");
  command
      ->add_option("--machine", options->machine,
                   "Also predicts each point for this machine (configs/machines)")
      ->excludes(measure);
  command->add_option(
      "--fit", options->fit,
      "Machine file to write: that of --machine or --measure, or this file as it is, with "
      "the efficiencies that predict this sweep best");
  command->add_flag("--dry-run", options->dry_run,
                    "Only list the points that would be run, and those that would not");
  command->callback([options, &launch, &action] {
    action = [options, &launch] { return sweep(*options, launch); };
  });
}

}  // namespace trident::app
