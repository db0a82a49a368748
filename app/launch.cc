// `launch`: runs `train` in other processes and restarts them from the newest checkpoint after a
// failure.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "app/options.h"
#include "app/stop_signals.h"
#include "base/error.h"
#include "base/files/json.h"
#include "base/process/process.h"
#include "run/supervisor/supervisor.h"

namespace trident::app {
namespace {

struct LaunchOptions {
  ConfigRequest config;
  std::int64_t max_restarts = 10;
  std::optional<std::int64_t> min_ranks, max_ranks;
  double backoff = 1;  // seconds
  std::string with, hostfile, format = "text";
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The remote shell of Open MPI. A value such as "ssh : rsh" lists alternatives; the first is used.
std::vector<std::string> remote_shell() {
  const char* agent = std::getenv("OMPI_MCA_plm_rsh_agent");
  std::vector<std::string> shell = words_of(agent != nullptr ? agent : "");
  shell.erase(std::ranges::find(shell, ":"), shell.end());
  if (shell.empty()) shell = {"ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
  return shell;
}

void say(const std::string& text) {
  print_error("trident launch: " + text);
}

void print_result(const SupervisorResult& result, const std::string& format) {
  const Goodput& time = result.goodput;
  if (format != "json") {
    fmt::print("{}", text_of(time));
    return;
  }
  nlohmann::ordered_json document{
      {"starts", time.starts},         {"seconds", time.seconds()},
      {"goodput", time.ratio()},       {"training", time.training},
      {"saving", time.saving},         {"lost", time.lost},
      {"starting", time.starting},     {"waiting", time.waiting},
      {"iterations", time.iterations}, {"lost_iterations", time.lost_iterations}};
  // The report that the last start of `train` printed; null where it ended without one.
  auto run = nlohmann::ordered_json::parse(result.last_report, nullptr, false);
  if (run.is_discarded()) run = nullptr;
  document["run"] = std::move(run);
  fmt::print("{}\n", json_text(document));
}

int launch(const LaunchOptions& options) {
  StopSignals signals([](const char* name, bool) {  // before any other thread exists
    say(fmt::format("{}: passed on; no more starts", name));
  });
  signals.begin();
  const char* tasks = std::getenv("SLURM_NTASKS");
  SupervisorResult result =
      supervise({.config = options.config,
                 .max_restarts = options.max_restarts,
                 .min_ranks = options.min_ranks,
                 .max_ranks = options.max_ranks,
                 .backoff = options.backoff,
                 .with = words_of(options.with),
                 .hostfile = options.hostfile,
                 .json = options.format == "json"},
                {.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                 .in_slurm = std::getenv("SLURM_JOB_ID") != nullptr,
                 .slurm_tasks = tasks != nullptr ? std::optional<std::int64_t>(std::atoll(tasks))
                                                 : std::nullopt,
                 .remote_shell = remote_shell(),
                 .stop = signals.stop(),
                 .say = say});
  signals.finish();
  // A signal may have come since the supervisor looked.
  if (signals.stop()) result.code = result.code == 0 || result.code == 130 ? 130 : 3;
  print_result(result, options.format);
  return result.code;
}

}  // namespace

void add_launch(CLI::App& app, const Launch& process, Action& action) {
  auto* command = app.add_subcommand(
      "launch", "Train, and start again from the newest checkpoint after a failure");
  auto options = std::make_shared<LaunchOptions>();
  add_config_options(*command, options->config);
  command->add_option("--max-restarts", options->max_restarts, "Starts after the first, at most")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command
      ->add_option(
          "--min-ranks", options->min_ranks,
          "Continue with fewer ranks than the config's, at least this many: the data-parallel "
          "size follows, the global batch stays")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--max-ranks", options->max_ranks, "Continue with more ranks, at most this many")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--backoff", options->backoff,
                   "Seconds before the first restart; twice as many before each further one "
                   "without an iteration between, up to 60")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_option("--hostfile", options->hostfile,
                      "Hosts and slots, as mpirun's: those that answer take part in a start");
  command->add_option(
      "--with", options->with,
      "Command that starts the ranks, followed by -n N: \"mpirun ...\" or \"srun ...\" "
      "(default for runtime.transport \"mpi\": srun in a Slurm job, else mpirun)");
  add_format_option(*command, options->format);
  command->callback([options, &process, &action] {
    action = [options, &process] {
      if (process.mpi) {
        throw RequestError(
            "trident launch: starts ranks itself, and was started as one by mpirun or srun");
      }
      ignore_closed_pipes();
      if (!(options->backoff >= 0)) throw RequestError("--backoff: needs a number of seconds");
      return launch(*options);
    };
  });
}

}  // namespace trident::app
