// `launch`: `train` in processes that are started again from the newest checkpoint when they fail.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "app/options.h"
#include "app/stop_signals.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/process/child_process.h"
#include "base/process/process.h"
#include "base/units.h"
#include "kernels/cuda_device.h"
#include "report/metrics_file.h"
#include "run/folders/held_folder.h"
#include "run/launch/goodput.h"
#include "run/startup/elastic.h"

namespace trident::app {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct LaunchOptions {
  ConfigRequest config;
  std::int64_t max_restarts = 10;
  std::optional<std::int64_t> min_ranks, max_ranks;
  double backoff = 1;  // seconds
  std::string with, hostfile, format = "text";
};

constexpr double kLongestWait = 60;  // seconds between starts
constexpr double kHanging = 20;      // seconds without ranks that had some, before it is ended
constexpr double kStillHeld = 15;    // seconds that folders may be held before the first start
constexpr double kEnding = 60;       // seconds that ranks have to end whose starter has ended

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "ssh : rsh" names what to try; the first is what there usually is.
std::vector<std::string> remote_shell() {
  const char* agent = std::getenv("OMPI_MCA_plm_rsh_agent");
  std::vector<std::string> shell = words_of(agent != nullptr ? agent : "");
  shell.erase(std::ranges::find(shell, ":"), shell.end());
  if (shell.empty()) shell = {"ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
  return shell;
}

// A file that goes with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("{}-{}-{:08x}", name, ::getpid(), std::random_device()()))
                  .string()) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double seconds_since(steady_clock::time_point begin) {
  return duration<double>(steady_clock::now() - begin).count();
}

// Whether what starts the ranks has had some here, and for a while has had none. (Open MPI's mpirun
// waits for ever for one that is killed while it connects.)
class Watch {
 public:
  explicit Watch(std::string program) : program_(std::move(program)) {}

  bool hangs() {
    const auto now = steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::seconds(1);
    if (running_below(program_) > 0) {
      seen_ = true;
      last_ = now;
    }
    return seen_ && seconds_since(last_) > kHanging;
  }

 private:
  const std::string program_;
  bool seen_ = false;
  steady_clock::time_point next_{}, last_{};
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options), signals_([this](const char* name, bool) {
          say(fmt::format("{}: passed on; no more starts", name));
        }) {
    signals_.begin();
    adopt_orphans();
    if (std::filesystem::exists(options.config.path) &&
        !std::filesystem::is_regular_file(options.config.path)) {
      throw RequestError(options.config.path +
                         ": launch reads it at each start: it must be a file");
    }
    program_ = std::filesystem::read_symlink("/proc/self/exe").string();
    ConfigRequest request = options.config;  // each start chooses its ranks
    if ((options.min_ranks || options.max_ranks) && !chooses_layout(request)) {
      request.set.emplace_back(least_size);
      request.ranks.reset();
    }
    const Config config = load(request, Launch{}).config;
    checkpoint_ = config.checkpoint;
    if (checkpoint_.save.empty() ||
        (checkpoint_.save_interval == 0 && checkpoint_.local.interval == 0)) {
      throw RequestError(
          "config: /checkpoint/save_interval: launch goes on from checkpoints; set it and "
          "checkpoint.save");
    }
    logs_ = config.logging.dir;
    metrics_ = (std::filesystem::path(logs_) / MetricsFile::kName).string();
    run_before_ = described(checkpoint_.save).run();
    gpus_ = config.runtime.device == "cuda";
    const bool processes = config.runtime.transport == "mpi" || !options.hostfile.empty();
    with_ = words_of(options.with);
    if (with_.empty() && processes) {
      const bool slurm = in_slurm() && options.hostfile.empty();
      with_ = words_of(slurm ? "srun" : "mpirun --bind-to none");
    }
    if (!options.hostfile.empty() && with_.front() == "srun") {
      throw RequestError("--hostfile: is mpirun's; srun takes its hosts from the Slurm job");
    }
  }

  int run() {
    wait_for_folders();
    GoodputCounter time(metrics_);
    std::int64_t starts = 0, furthest = time.iteration();
    double wait = options_.backoff;
    int code = 0;
    for (;;) {
      const auto begin = steady_clock::now();
      time.started();
      const ChildProcess::End end = start(++starts);
      code = end.code;
      end_what_is_left();
      const double seconds = seconds_since(begin);
      // What is refused has written nothing: what lies there is another run's.
      const bool refused = code == 2 && end.signal == 0;
      refused ? time.refused(seconds) : time.ended(seconds);
      if (code == 0 || signals_.stop() || (code == 130 && end.signal == 0)) break;
      if (time.iteration() > furthest) wait = options_.backoff;
      furthest = std::max(furthest, time.iteration());
      const std::string what = fmt::format(
          "start {} ended {} after {:.1f} s{}", starts,
          end.signal != 0 ? fmt::format("by signal {} ({})", end.signal, ::strsignal(end.signal))
                          : fmt::format("with exit code {}", code),
          seconds, refused ? "" : fmt::format(", at iteration {}", time.iteration()));
      if (code == 2 && starts == 1) {
        say(what + ": the request is wrong, which no other start would mend");
        break;
      }
      if (starts > options_.max_restarts) {
        say(fmt::format("{}; --max-restarts is {}", what, options_.max_restarts));
        break;
      }
      say(fmt::format("{}; again in {:.1f} s (restart {} of {})", what, wait, starts,
                      options_.max_restarts));
      const auto since = steady_clock::now();
      while (seconds_since(since) < wait && !signals_.stop()) {
        std::this_thread::sleep_for(milliseconds(20));
      }
      time.waited(seconds_since(since));
      wait = std::min(2 * wait, std::max(kLongestWait, options_.backoff));
      if (signals_.stop()) {
        code = 130;  // nothing runs that could save more
        break;
      }
      begun_ = begun_ || time.now().iterations > 0;
    }
    signals_.finish();
    tell(time.now());
    if (signals_.stop()) return code == 0 || code == 130 ? 130 : 3;
    return code == 0 || code == 130 || (code == 2 && starts == 1) ? code : 3;
  }

 private:
  // A requeued job may begin while the run that it goes on with still dies: a first start that is
  // refused for that would be the last.
  void wait_for_folders() const {
    const auto since = steady_clock::now();
    std::string told;
    for (const std::string& path : {logs_, checkpoint_.save}) {
      while (seconds_since(since) < kStillHeld && !signals_.stop()) {
        try {
          HeldFolder folder{.path = path};
          take_hold(folder, false, 0);
          break;
        } catch (const RequestError& error) {
          if (told.empty())
            say(fmt::format("waiting {:.0f} s at most: {}", kStillHeld, error.what()));
          told = error.what();
          std::this_thread::sleep_for(milliseconds(100));
        }
      }
    }
  }

  static void say(const std::string& text) { print_error("trident launch: " + text); }
  static bool in_slurm() { return std::getenv("SLURM_JOB_ID") != nullptr; }

  // Those of the hosts that answer, with `file` naming them; what there is of ranks.
  std::optional<std::int64_t> available(const std::string& file) const {
    if (options_.hostfile.empty()) {
      if (!with_.empty() && with_.front() == "srun") {
        const char* tasks = std::getenv("SLURM_NTASKS");
        return tasks != nullptr ? std::optional<std::int64_t>(std::atoll(tasks)) : std::nullopt;
      }
      if (gpus_ && with_.empty()) return find_gpus().count;
      return std::nullopt;
    }
    const std::vector<std::string> shell = remote_shell();
    std::string text;
    std::int64_t slots = 0;
    for (const Host& host : read_hosts(options_.hostfile)) {
      if (signals_.stop()) break;
      const bool here = host.name == "localhost" || host.name == host_name();
      if (!here && !answers(shell, host.name)) {
        say(fmt::format("{} does not answer: left out", host.name));
        continue;
      }
      text += fmt::format("{} slots={}\n", host.name, host.slots);
      slots += host.slots;
    }
    if (slots == 0 && !signals_.stop()) {
      throw RequestError("--hostfile: " + options_.hostfile + ": none of its hosts answers");
    }
    write_file_atomic(file, text);
    return slots;
  }

  static bool answers(std::vector<std::string> shell, const std::string& host) {
    shell.push_back(host);
    shell.emplace_back("true");
    ChildProcess probe(shell);
    const auto end = probe.wait(std::chrono::seconds(10));
    return end && end->code == 0;
  }

  // One start, to its end. What keeps the first one from coming about is the caller's to tell.
  ChildProcess::End start(std::int64_t number) {
    try {
      return run_once(number);
    } catch (const std::exception& error) {
      if (number == 1) throw;
      say(error.what());  // hosts may come back, a disk be emptied
      return {.code = 3};
    }
  }

  ChildProcess::End run_once(std::int64_t number) {
    const TemporaryFile hosts("trident-launch-hosts");
    const ConfigRequest request = request_of();
    const Ranks ranks =
        choose_ranks(request, options_.min_ranks, options_.max_ranks, available(hosts.path()));
    if (signals_.stop()) return {.code = 130};
    std::vector<std::string> command = with_;
    if (!with_.empty()) {
      command.insert(command.end(), {"-n", std::to_string(ranks.count)});
      if (!options_.hostfile.empty()) {
        command.insert(command.end(), {"--hostfile", hosts.path()});
      }
    }
    command.insert(command.end(), {program_, "train", request.path});
    for (const std::string& one : request.set) command.insert(command.end(), {"--set", one});
    if (ranks.adapted) command.insert(command.end(), {"--set", size_follows_ranks});
    if (with_.empty() && ranks.told) {
      command.insert(command.end(), {"--ranks", std::to_string(ranks.count)});
    }
    if (options_.format == "json") command.insert(command.end(), {"--format", "json"});
    say(fmt::format("start {}: {}", number, counted(ranks.count, "rank")));
    // What it reports is a part of the report at the end.
    std::optional<TemporaryFile> report;
    FileDescriptor out;
    if (options_.format == "json") {
      report.emplace("trident-launch-report");
      out = FileDescriptor(
          ::open(report->path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (out.get() < 0) throw_file_error(report->path(), "open", errno);
    }
    ChildProcess child(command, out.get());
    int told = 0;
    auto next = steady_clock::time_point::min();
    Watch watch(program_);
    for (;;) {
      if (const auto end = child.wait(milliseconds(50))) {
        // Told before it could listen: there was nothing to save.
        if (report) reported_ = read_file(report->path(), std::uint64_t{64} << 20);
        const bool early = end->signal == SIGUSR1 || end->signal == SIGTERM;
        return signals_.stop() && early ? ChildProcess::End{.code = 130} : *end;
      }
      if (!with_.empty() && watch.hangs()) {
        say(fmt::format("{} has had no ranks here for {:.0f} s and doesn't end: it is ended",
                        with_.front(), kHanging));
        child.signal_group(SIGKILL);
      }
      if (!signals_.stop() || steady_clock::now() < next) continue;
      if (with_.empty() && told > 0) continue;
      // mpirun and srun pass this one on to the ranks that they have by then, so it is sent again.
      child.signal(with_.empty() ? SIGTERM : SIGUSR1);
      child.signal(SIGCONT);
      next = steady_clock::now() + milliseconds(++told < 10 ? 500 : 30'000);
    }
  }

  // What started the ranks may be gone before them: they save, and hold the run's folders.
  void end_what_is_left() {
    const auto begin = steady_clock::now();
    const int left = end_orphans(SIGUSR1, [&] { return seconds_since(begin) < kEnding; });
    if (left > 0) say(fmt::format("{} process(es) of it were left, and have been ended", left));
  }

  // Once the run has begun where it was to begin, later starts go on from what there is by then.
  ConfigRequest request_of() const {
    ConfigRequest request = options_.config;
    const bool replaced = described(checkpoint_.save).run() != run_before_;
    if (checkpoint_.resume == "never" && replaced) {
      request.set.emplace_back("checkpoint.resume=auto");
    }
    if (is_iteration(checkpoint_.load) && begun_) {
      request.set.emplace_back("checkpoint.load=auto");
    }
    return request;
  }

  void tell(const Goodput& time) const {
    if (options_.format == "json") {
      nlohmann::ordered_json document{
          {"starts", time.starts},         {"seconds", time.seconds()},
          {"goodput", time.ratio()},       {"training", time.training},
          {"saving", time.saving},         {"lost", time.lost},
          {"starting", time.starting},     {"waiting", time.waiting},
          {"iterations", time.iterations}, {"lost_iterations", time.lost_iterations}};
      // Of the last start, as `train` reports it; null where it ended before.
      auto run = nlohmann::ordered_json::parse(reported_, nullptr, false);
      if (run.is_discarded()) run = nullptr;
      document["run"] = std::move(run);
      fmt::print("{}\n", json_text(document));
    } else {
      fmt::print("{}", text_of(time));
    }
  }

  const LaunchOptions& options_;
  StopSignals signals_;  // before any other thread
  CheckpointConfig checkpoint_;
  std::string run_before_;  // that checkpoint.save was of
  std::string reported_;    // by the last start, where JSON is asked for
  bool begun_ = false;      // a start of this launch has trained
  std::string logs_, metrics_, program_;
  bool gpus_ = false;
  std::vector<std::string> with_;  // that starts the ranks; none: one process has them all
};

}  // namespace

void add_launch(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand(
      "launch", "Train, and start again from the newest checkpoint after a failure");
  auto options = std::make_shared<LaunchOptions>();
  add_config_options(*command, options->config);
  command->add_option("--max-restarts", options->max_restarts, "Starts after the first, at most")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command
      ->add_option("--min-ranks", options->min_ranks,
                   "Go on with fewer ranks than the config's, down to so many: the data-parallel "
                   "size follows, the global batch stays")
      ->check(CLI::Range(1, 1000000));
  command->add_option("--max-ranks", options->max_ranks, "And with more, up to so many")
      ->check(CLI::Range(1, 1000000));
  command
      ->add_option("--backoff", options->backoff,
                   "Seconds before the first restart; twice as many before each further one "
                   "without an iteration between, up to 60")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_option("--hostfile", options->hostfile,
                      "Hosts and slots, as mpirun's: those that answer take part in a start");
  command->add_option("--with", options->with,
                      "What starts the ranks, followed by -n N: \"mpirun ...\" or \"srun ...\" "
                      "(default for runtime.transport \"mpi\": srun in a Slurm job, else mpirun)");
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      if (launch.mpi) {
        throw RequestError(
            "trident launch: starts ranks itself, and was started as one by mpirun or srun");
      }
      ignore_closed_pipes();
      if (!(options->backoff >= 0)) throw RequestError("--backoff: needs a number of seconds");
      return Launcher(*options).run();
    };
  });
}

}  // namespace trident::app
