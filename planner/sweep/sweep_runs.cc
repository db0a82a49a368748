#include "planner/sweep/sweep_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/process/child_process.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "report/iteration_metrics.h"
#include "report/run_files.h"
#include "report/run_speed.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// Returns the complete lines of a file.
std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_discarded()) lines.push_back(std::move(json));
  }
  return lines;
}

// Returns the figures of a successful run over its measured iterations: lists by iteration, totals
// and means.
Json figures_of(const std::vector<nlohmann::json>& lines, int warm_up, const RunAbout& about) {
  std::vector<IterationMetrics> counted;
  for (std::size_t i = static_cast<std::size_t>(warm_up); i < lines.size(); ++i) {
    counted.push_back(metrics_of_line(Json(lines[i])));
  }
  Json run;
  std::map<std::string, double> parts;
  for (const IterationMetrics& m : counted) {
    run["iteration_time_ms"].push_back(m.iteration_time_ms);
    if (m.replayed_ms) run["replays_ms"].push_back(*m.replayed_ms);
    for (const auto& [part, ms] : m.parts_ms) parts[part] += ms;
  }
  const RunSpeed total = total_of(counted);
  run["tokens_per_second"] = total.tokens_per_second;
  run["flops_per_second"] = total.flops_per_second;
  run["product_rate_of"] =
      about.starts.empty() ? Json::object() : Json(about.starts.back().machines);
  run["product_rates"] = about.best_rates;
  run["bubble_ratio"] = total.bubble_ratio;
  run["bubble_ratio_wall"] = total.bubble_ratio_wall;
  run["bubble_predicted"] = total.bubble_predicted;
  const nlohmann::json& last = lines.back();
  run["bytes_sent"] = last.at("bytes_sent");
  run["peak_memory"] = last.at("peak_memory").at("total");
  run["loss"] = last.at("loss").is_number() ? last.at("loss") : nlohmann::json(nullptr);
  for (const auto& [part, sum] : parts) {
    run["parts_ms"][part] = sum / static_cast<double>(counted.size());
  }
  return run;
}

std::string machine_file(const SweepRequest& request, int repeat) {
  return fmt::format("{}/machines/{}.json", request.out, repeat + 1);
}

// Returns the last lines of a log, for people.
std::string end_of(const std::string& log) {
  std::vector<std::string> lines;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(printable(line));
    if (lines.size() > 3) lines.erase(lines.begin());
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : " | ") + line;
  return text;
}

class SweepRunner {
 public:
  SweepRunner(const SweepRequest& request, const SweepPlan& plan, const Json& machine)
      : request_(request), plan_(plan), machine_(machine) {
    try {
      begin();
    } catch (const fs::filesystem_error& error) {
      throw RequestError(
          fmt::format("--out: {}: {}", printable(request_.out), error.code().message()));
    }
    end_last_line();
    for (const nlohmann::json& run : json_lines(runs_file())) remember(run);
  }
  SweepRunner(const SweepRunner&) = delete;
  SweepRunner& operator=(const SweepRunner&) = delete;
  ~SweepRunner() {
    if (lock_ >= 0) close(lock_);
  }

  // Runs all points once per repeat, in every second repeat from the last to the first. Returns
  // false if the sweep was stopped.
  bool run() {
    const auto begun = steady_clock::now();
    std::size_t left = 0, done = 0;
    for (int repeat = 0; repeat < request_.repeats; ++repeat) {
      for (const SweepPoint& point : plan_.points) left += wanted(point, repeat) ? 1 : 0;
    }
    for (int repeat = 0; repeat < request_.repeats; ++repeat) {
      const bool any = std::any_of(plan_.points.begin(), plan_.points.end(),
                                   [&](const auto& point) { return wanted(point, repeat); });
      if (request_.measure && (any || !fs::exists(machine_file(request_, repeat))) &&
          !measure_machine(repeat)) {
        return false;
      }
      for (std::size_t i = 0; i < plan_.points.size(); ++i) {
        const std::size_t at = repeat % 2 == 0 ? i : plan_.points.size() - 1 - i;
        const SweepPoint& point = plan_.points[at];
        if (!wanted(point, repeat)) continue;
        if (stopped()) return false;
        const std::optional<Json> run = measure(point, repeat);
        if (!run) return false;
        record(*run);
        ++done;
        report(point, *run, done, left, seconds_since(begun));
      }
    }
    return true;
  }

  std::map<std::string, std::vector<nlohmann::json>> take_runs() { return std::move(runs_); }

 private:
  std::string runs_file() const { return request_.out + "/runs.jsonl"; }
  bool stopped() const { return request_.stop != nullptr && *request_.stop; }

  Json settings() const {
    Json grid = Json::array();
    for (const GridKey& key : request_.grid) grid.push_back({key.name, key.values});
    return {{"config", sweep_base(request_)},
            {"grid", grid},
            {"iterations", request_.iterations},
            {"warm_up", request_.warm_up},
            {"scaling", request_.weak ? "weak" : "strong"},
            {"machine", machine_},
            {"program", program()}};
  }

  // Other builds have other run times.
  Json program() const {
    std::error_code error;
    const auto written = fs::last_write_time(request_.program, error).time_since_epoch();
    return {{"bytes", fs::file_size(request_.program, error)}, {"written", written.count()}};
  }

  // Whether a sweep has written that file.
  static bool is_sweeps(const std::string& file) {
    const nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, false);
    if (!json.is_object()) return false;
    return json.contains("config") && json.contains("grid") && json.contains("warm_up") &&
           json.contains("scaling");
  }

  // Locks the folder, for one sweep at a time.
  void hold() {
    lock_ = open((request_.out + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) {
      throw RequestError(fmt::format("--out: {}: {}", printable(request_.out),
                                     std::generic_category().message(errno)));
    }
    if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
    throw RequestError(
        fmt::format("--out: {}: another sweep is running there", printable(request_.out)));
  }

  // A killed sweep may have left an incomplete line.
  void end_last_line() const {
    std::ifstream file(runs_file(), std::ios::ate | std::ios::binary);
    if (!file || file.tellg() <= 0) return;
    file.seekg(-1, std::ios::end);
    if (file.get() != '\n') std::ofstream(runs_file(), std::ios::app) << "\n";
  }

  // Opens the folder of this sweep, a new one or one to resume.
  void begin() {
    const std::string file = request_.out + "/settings.json", now = settings().dump(2) + "\n";
    const bool there = fs::exists(file);
    if ((there && !is_sweeps(file)) ||
        (!there && fs::exists(request_.out) &&
         (!fs::is_directory(request_.out) || !fs::is_empty(request_.out)))) {
      throw RequestError(
          fmt::format("--out: {}: holds files that no sweep wrote; give another folder",
                      printable(request_.out)));
    }
    fs::create_directories(request_.out);
    hold();
    if (there && !request_.overwrite) {
      if (read_file(file) == now) return;
      throw RequestError(
          fmt::format("--out: {}: holds another sweep: its config, grid, iterations, scaling, "
                      "machine or program "
                      "(settings.json) differs; give another folder, or --overwrite",
                      printable(request_.out)));
    }
    fs::remove(runs_file());
    fs::remove_all(request_.out + "/runs");
    fs::remove_all(request_.out + "/machines");
    write_file(request_.out + "/config.json", sweep_base(request_).dump(2) + "\n");
    write_file(file, now);
  }

  void remember(const nlohmann::json& run) {
    if (!run.is_object() || !run.contains("point") || !run["point"].is_string()) return;
    auto& runs = runs_[run["point"]];
    // A later run of the same repeat replaces the earlier one.
    std::erase_if(runs, [&](const nlohmann::json& other) {
      return other.value("repeat", -1) == run.value("repeat", -1);
    });
    runs.push_back(run);
  }
  void record(const Json& run) {
    std::ofstream file(runs_file(), std::ios::app);
    file << run.dump() << "\n" << std::flush;
    if (!file) throw Error(fmt::format("{}: can't be written", runs_file()));
    remember(nlohmann::json::parse(run.dump()));
  }

  // Whether to run this repeat. A point that failed isn't run again unless `retry` is set.
  bool wanted(const SweepPoint& point, int repeat) const {
    const auto found = runs_.find(point.label);
    if (found == runs_.end()) return true;
    return std::none_of(found->second.begin(), found->second.end(), [&](const auto& run) {
      const bool good = run.value("status", "") == "ok";
      if (!good && request_.retry && !again_.contains({point.label, repeat})) return false;
      return !good || run.value("repeat", -1) == repeat;
    });
  }

  std::vector<std::string> command(const SweepPoint& point, const std::string& folder) const {
    std::vector<std::string> words{"sh", "-c", "log=$0; exec \"$@\" >\"$log\" 2>&1",
                                   folder + "/log.txt"};
    if (!transport_constraints(point.config).threads) {
      words.insert(words.end(), request_.mpirun.begin(), request_.mpirun.end());
      words.insert(words.end(), {"-n", std::to_string(point.config.world_size())});
    }
    words.insert(words.end(), {request_.program, "train", request_.out + "/config.json"});
    std::vector<std::string> sets = point.set;
    sets.push_back("logging.dir=" + folder + "/run");
    sets.emplace_back("logging.overwrite=true");
    sets.emplace_back("logging.tensorboard=false");
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return words;
  }

  // Returns the child's end. If the sweep is stopped or the child is late, ends the child and
  // returns nothing.
  std::optional<ChildProcess::End> ended(ChildProcess& child, double most, bool& late) const {
    const auto begun = steady_clock::now();
    while (true) {
      if (const auto end = child.wait(milliseconds(100))) return end;
      late = seconds_since(begun) > most;
      if (!late && !stopped()) continue;
      child.signal_group(SIGTERM);
      if (!child.wait(milliseconds(3000))) child.signal_group(SIGKILL);
      child.wait(milliseconds(3000));
      return std::nullopt;
    }
  }

  // Runs one round of `bench machine` with the kernels of the grid's layouts. Returns false if the
  // sweep was stopped.
  bool measure_machine(int repeat) {
    const std::string file = machine_file(request_, repeat), part = file + ".part",
                      log = request_.out + "/machines/log.txt";
    if (fs::exists(file)) return true;
    fs::create_directories(request_.out + "/machines");
    fs::remove(part);
    if (!request_.known.empty()) write_file(part, request_.known);
    Json grid;
    for (const GridKey& key : request_.grid) {
      for (const std::string& value : key.values) {
        const Json number = Json::parse(value, nullptr, false);
        grid[key.path].push_back(number.is_discarded() ? Json(value) : number);
      }
    }
    write_file(request_.out + "/grid.json", grid.dump(2) + "\n");
    ChildProcess child({"sh", "-c", "log=$0; exec \"$@\" >\"$log\" 2>&1", log, request_.program,
                        "bench", "machine", request_.out + "/config.json", "--grid",
                        request_.out + "/grid.json", "--rounds", "1", "--out", part});
    // The round runs a rank of each layout.
    const double most = request_.timeout * static_cast<double>(plan_.points.size());
    bool late = false;
    const auto end = ended(child, most, late);
    if (!end && !late) return false;
    // If this round fails, the other rounds remain.
    std::string what = "measured";
    if (late) what = fmt::format("not measured: it took longer than {:g} s", most);
    if (end && end->code != 0) what = "not measured: " + end_of(log);
    if (end && end->code == 0) fs::rename(part, file);
    if (request_.report) request_.report(fmt::format("machine, round {}: {}", repeat + 1, what));
    return true;
  }

  // Returns the run, or nothing if the sweep was stopped.
  std::optional<Json> measure(const SweepPoint& point, int repeat) {
    const std::string folder = run_folder(request_, point, repeat);
    again_.insert({point.label, repeat});
    fs::remove_all(folder);
    fs::create_directories(folder);
    Json run{{"point", point.label}, {"repeat", repeat}, {"status", "ok"}};
    ChildProcess child(command(point, folder));
    const auto begun = steady_clock::now();
    bool late = false;
    const auto end = ended(child, request_.timeout, late);
    if (!end) {
      if (!late) return std::nullopt;
      run["status"] = "timeout";
      run["reason"] = fmt::format("took longer than {:g} s", request_.timeout);
      return run;
    }
    run["seconds"] = seconds_since(begun);
    const auto lines = json_lines(folder + "/run/metrics.jsonl");
    if (end->code != 0 || std::ssize(lines) != request_.warm_up + request_.iterations) {
      run["status"] = "failed";
      run["reason"] = fmt::format("exit code {}: {}", end->code, end_of(folder + "/log.txt"));
      return run;
    }
    run.update(figures_of(lines, request_.warm_up, RunFiles::about(folder + "/run")));
    return run;
  }

  void report(const SweepPoint& point, const Json& run, std::size_t done, std::size_t all,
              double seconds) const {
    if (!request_.report) return;
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    const std::string what =
        run["status"] == "ok"
            ? fmt::format("{:.0f} tokens/s", run["tokens_per_second"].get<double>())
            : fmt::format("{}: {}", run["status"].get<std::string>(),
                          run["reason"].get<std::string>());
    request_.report(fmt::format(
        "[{}/{}] {}: {}; {} left", done, all, point.label, what,
        left < 90 ? fmt::format("{:.0f} s", left) : fmt::format("{:.0f} min", left / 60)));
  }

  const SweepRequest& request_;
  const SweepPlan& plan_;
  const Json& machine_;
  int lock_ = -1;
  std::map<std::string, std::vector<nlohmann::json>> runs_;
  std::set<std::pair<std::string, int>> again_;  // points and repeats that this sweep ran
};

}  // namespace

SweepRuns run_points(const SweepRequest& request, const SweepPlan& plan,
                     const nlohmann::ordered_json& machine) {
  SweepRunner runner(request, plan, machine);
  SweepRuns runs{.whole = runner.run()};
  runs.of_point = runner.take_runs();
  return runs;
}

Machine measured_machine(const SweepRequest& request) {
  std::vector<Machine> rounds;
  for (int repeat = 0; repeat < request.repeats; ++repeat) {
    const std::string file = machine_file(request, repeat);
    if (fs::exists(file)) rounds.push_back(parse_machine(read_file(file), file));
  }
  if (!rounds.empty()) return median_of(rounds);
  throw RequestError(fmt::format("--measure: {} has no measured machine", printable(request.out)));
}

std::string run_folder(const SweepRequest& request, const SweepPoint& point, int repeat) {
  return fmt::format("{}/runs/{:03}-{}", request.out, point.number, repeat);
}

}  // namespace trident
