#include "run/supervisor/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "base/process/child_process.h"
#include "base/process/process.h"
#include "base/units.h"
#include "kernels/cuda_device.h"
#include "report/metrics_file.h"
#include "run/folders/locked_folder.h"
#include "run/supervisor/elastic.h"

namespace trident {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr double kLongestWait = 60;  // seconds between starts, at most
constexpr double kHanging = 20;      // seconds after its last rank until mpirun or srun is killed
constexpr double kStillHeld = 15;    // seconds to wait for locked folders before the first start
constexpr double kEnding = 60;       // seconds that ranks have to end after mpirun or srun

// A file that the destructor removes.
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

// Detects a launcher (mpirun, srun) that had ranks on this machine and has had none for kHanging
// seconds. (Open MPI's mpirun waits for ever for a rank that is killed while it connects.)
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

class Supervisor {
 public:
  Supervisor(const SupervisorRequest& request, const SupervisorSurroundings& surroundings)
      : request_(request), around_(surroundings) {
    adopt_orphans();
    if (std::filesystem::exists(request.config.path) &&
        !std::filesystem::is_regular_file(request.config.path)) {
      throw RequestError(request.config.path +
                         ": launch reads it at each start: it must be a file");
    }
    ConfigRequest whole = request.config;  // each start chooses its number of ranks
    if ((request.min_ranks || request.max_ranks) && !chooses_layout(whole)) {
      whole.least_data_parallel = true;
      whole.ranks.reset();
    }
    const Config config = load(whole, Launch{}).config;
    checkpoint_ = config.checkpoint;
    if (checkpoint_.save.empty() ||
        (checkpoint_.save_interval == 0 && checkpoint_.local.interval == 0)) {
      throw RequestError(
          "config: /checkpoint/save_interval: launch resumes from checkpoints; set it and "
          "checkpoint.save");
    }
    logs_ = config.logging.dir;
    metrics_ = (std::filesystem::path(logs_) / MetricsFile::kName).string();
    run_before_ = read_without_lock(checkpoint_.save).run();
    gpus_ = config.runtime.device == "cuda";
    const bool processes = config.runtime.transport == "mpi" || !request.hostfile.empty();
    with_ = request.with;
    if (with_.empty() && processes) {
      const bool slurm = around_.in_slurm && request.hostfile.empty();
      with_ = slurm ? std::vector<std::string>{"srun"}
                    : std::vector<std::string>{"mpirun", "--bind-to", "none"};
    }
    if (!request.hostfile.empty() && with_.front() == "srun") {
      throw RequestError("--hostfile: is mpirun's; srun takes its hosts from the Slurm job");
    }
  }

  SupervisorResult run() {
    wait_for_folders();
    GoodputCounter time(metrics_);
    std::int64_t starts = 0, furthest = time.iteration();
    double wait = request_.backoff;
    int code = 0;
    for (;;) {
      const auto begin = steady_clock::now();
      time.started();
      const ChildProcess::End end = start(++starts);
      code = end.code;
      end_what_is_left();
      const double seconds = seconds_since(begin);
      // A refused start has written nothing: new lines of metrics are another run's.
      const bool refused = code == 2 && end.signal == 0;
      refused ? time.refused(seconds) : time.ended(seconds);
      if (code == 0 || around_.stop.load() || (code == 130 && end.signal == 0)) break;
      if (time.iteration() > furthest) wait = request_.backoff;
      furthest = std::max(furthest, time.iteration());
      const std::string what = fmt::format(
          "start {} ended {} after {:.1f} s{}", starts,
          end.signal != 0 ? fmt::format("by signal {} ({})", end.signal, ::strsignal(end.signal))
                          : fmt::format("with exit code {}", code),
          seconds, refused ? "" : fmt::format(", at iteration {}", time.iteration()));
      if (code == 2 && starts == 1) {
        say(what + ": the request is wrong, so another start would fail, too");
        break;
      }
      if (starts > request_.max_restarts) {
        say(fmt::format("{}; --max-restarts is {}", what, request_.max_restarts));
        break;
      }
      say(fmt::format("{}; again in {:.1f} s (restart {} of {})", what, wait, starts,
                      request_.max_restarts));
      const auto since = steady_clock::now();
      while (seconds_since(since) < wait && !around_.stop.load()) {
        std::this_thread::sleep_for(milliseconds(20));
      }
      time.waited(seconds_since(since));
      wait = std::min(2 * wait, std::max(kLongestWait, request_.backoff));
      if (around_.stop.load()) {
        code = 130;  // no process runs that could save
        break;
      }
      begun_ = begun_ || time.now().iterations > 0;
    }
    SupervisorResult result{.goodput = time.now(), .last_report = reported_};
    if (around_.stop.load()) {
      result.code = code == 0 || code == 130 ? 130 : 3;
    } else {
      result.code = code == 0 || code == 130 || (code == 2 && starts == 1) ? code : 3;
    }
    return result;
  }

 private:
  // Waits until the folders are free. A requeued job may begin while the run that it resumes is
  // still ending; a first start that is refused for that would be the last one.
  void wait_for_folders() const {
    const auto since = steady_clock::now();
    std::string reported;
    for (const std::string& path : {logs_, checkpoint_.save}) {
      while (seconds_since(since) < kStillHeld && !around_.stop.load()) {
        try {
          LockedFolder folder{.path = path};
          lock_folder(folder, false, 0);
          break;
        } catch (const RequestError& error) {
          if (reported.empty())
            say(fmt::format("waiting {:.0f} s at most: {}", kStillHeld, error.what()));
          reported = error.what();
          std::this_thread::sleep_for(milliseconds(100));
        }
      }
    }
  }

  void say(const std::string& text) const { around_.say(text); }

  // The number of ranks that can be started; empty if unknown. With a hostfile, counts the hosts
  // that answer and writes them to `file`.
  std::optional<std::int64_t> available(const std::string& file) const {
    if (request_.hostfile.empty()) {
      if (!with_.empty() && with_.front() == "srun") {
        return around_.slurm_tasks;
      }
      if (gpus_ && with_.empty()) return find_gpus().count;
      return std::nullopt;
    }
    std::string text;
    std::int64_t slots = 0;
    for (const Host& host : read_hosts(request_.hostfile)) {
      if (around_.stop.load()) break;
      const bool here = host.name == "localhost" || host.name == host_name();
      if (!here && !answers(around_.remote_shell, host.name)) {
        say(fmt::format("{} does not answer: left out", host.name));
        continue;
      }
      text += fmt::format("{} slots={}\n", host.name, host.slots);
      slots += host.slots;
    }
    if (slots == 0 && !around_.stop.load()) {
      throw RequestError("--hostfile: " + request_.hostfile + ": none of its hosts answers");
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

  // Runs one start to its end. Throws if the first start can't be made; prints the reason for a
  // later one.
  ChildProcess::End start(std::int64_t number) {
    try {
      return run_once(number);
    } catch (const std::exception& error) {
      if (number == 1) throw;
      say(error.what());  // a later start may find hosts again, or disk space
      return {.code = 3};
    }
  }

  ChildProcess::End run_once(std::int64_t number) {
    const TemporaryFile hosts("trident-launch-hosts");
    const ConfigRequest request = request_of();
    const Ranks ranks =
        choose_ranks(request, request_.min_ranks, request_.max_ranks, available(hosts.path()));
    if (around_.stop.load()) return {.code = 130};
    std::vector<std::string> command = with_;
    if (!with_.empty()) {
      command.insert(command.end(), {"-n", std::to_string(ranks.count)});
      if (!request_.hostfile.empty()) {
        command.insert(command.end(), {"--hostfile", hosts.path()});
      }
    }
    command.insert(command.end(), {around_.program, "train", request.path});
    for (const std::string& one : request.set) command.insert(command.end(), {"--set", one});
    if (ranks.adapted) command.insert(command.end(), {"--set", size_follows_ranks});
    if (with_.empty() && ranks.pass_ranks_option) {
      command.insert(command.end(), {"--ranks", std::to_string(ranks.count)});
    }
    if (request_.json) command.insert(command.end(), {"--format", "json"});
    say(fmt::format("start {}: {}", number, counted(ranks.count, "rank")));
    // The launch's report includes the report of the start.
    std::optional<TemporaryFile> report;
    FileDescriptor out;
    if (request_.json) {
      report.emplace("trident-launch-report");
      out = FileDescriptor(
          ::open(report->path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (out.get() < 0) throw_file_error(report->path(), "open", errno);
    }
    ChildProcess child(command, out.get());
    int passed_on = 0;
    auto next = steady_clock::time_point::min();
    Watch watch(around_.program);
    for (;;) {
      if (const auto end = child.wait(milliseconds(50))) {
        // A rank that the signal ended had not yet installed its handler, so it had nothing to
        // save.
        if (report) reported_ = read_file(report->path(), std::uint64_t{64} << 20);
        const bool early = end->signal == SIGUSR1 || end->signal == SIGTERM;
        return around_.stop.load() && early ? ChildProcess::End{.code = 130} : *end;
      }
      if (!with_.empty() && watch.hangs()) {
        say(fmt::format("{} has had no ranks here for {:.0f} s and doesn't end: killing it",
                        with_.front(), kHanging));
        child.signal_group(SIGKILL);
      }
      if (!around_.stop.load() || steady_clock::now() < next) continue;
      if (with_.empty() && passed_on > 0) continue;
      // mpirun and srun pass the signal on to the ranks that they have by then, so it is sent
      // again.
      child.signal(with_.empty() ? SIGTERM : SIGUSR1);
      child.signal(SIGCONT);
      next = steady_clock::now() + milliseconds(++passed_on < 10 ? 500 : 30'000);
    }
  }

  // Ends ranks that outlive their launcher: they save, and hold the run's folders.
  void end_what_is_left() {
    const auto begin = steady_clock::now();
    const int left = end_orphans(SIGUSR1, [&] { return seconds_since(begin) < kEnding; });
    if (left > 0) say(fmt::format("ended {} process(es) that this start had left", left));
  }

  // The request of the next start. Once the run has begun, later starts resume from its newest
  // checkpoint.
  ConfigRequest request_of() const {
    ConfigRequest request = request_.config;
    const bool replaced = read_without_lock(checkpoint_.save).run() != run_before_;
    if (checkpoint_.resume == "never" && replaced) {
      request.set.emplace_back("checkpoint.resume=auto");
    }
    if (is_iteration(checkpoint_.load) && begun_) {
      request.set.emplace_back("checkpoint.load=auto");
    }
    return request;
  }

  const SupervisorRequest& request_;
  const SupervisorSurroundings& around_;
  CheckpointConfig checkpoint_;
  std::string run_before_;  // the run that checkpoint.save belonged to before the launch
  std::string reported_;    // the last start's report, if JSON is requested
  bool begun_ = false;      // a start of this launch has trained
  std::string logs_, metrics_;
  bool gpus_ = false;
  std::vector<std::string>
      with_;  // the command that starts the ranks; empty: one process runs all ranks
};

}  // namespace

SupervisorResult supervise(const SupervisorRequest& request,
                           const SupervisorSurroundings& surroundings) {
  return Supervisor(request, surroundings).run();
}

}  // namespace trident
