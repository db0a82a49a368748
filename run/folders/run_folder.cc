#include "run/folders/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/starts.h"
#include "checkpoint/verified_blocks.h"
#include "core/dtype.h"
#include "formats/hugging_face/weights_folder.h"
#include "report/earlier_run.h"
#include "report/metrics_file.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr auto kLogs = "/logging/dir";
constexpr auto kWeights = "/checkpoint/save";

// Removes the files that dead saves have left; with `all`, for a new run, all checkpoints, too.
void clear_checkpoints(const std::string& directory, bool all) {
  FileSystem& files = real_files();
  clear_unfinished(files, directory);
  if (!all) return;
  const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  for (const FoundCheckpoint& one : found) remove_checkpoint(files, directory, one.iteration);
  if (!found.empty()) files.remove((fs::path(directory) / latest_name).string());
}

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::vector<LockedFolder> folders_of(const std::string& save, const std::string& log_dir) {
  std::vector<LockedFolder> folders(save.empty() ? 1 : 2);
  folders[0] = {.key = kLogs, .path = log_dir};
  if (folders.size() == 2) folders[1] = {.key = kWeights, .path = save};
  return folders;
}

// Runs `check` on the folder's path and puts the folder's key before its problems.
void at(const LockedFolder& folder, const std::function<void(const std::string&)>& check) {
  try {
    check(folder.path);
  } catch (const RequestError& error) {
    throw error.at(fmt::format("config: {}: ", folder.key));
  }
}

bool is_among(const std::vector<std::string>& runs, const std::string& run) {
  return std::ranges::find(runs, run) != runs.end();
}

void check_logs(const Config& config, const LockedFolder& logs, const std::string& resumed) {
  at(logs, check_no_save_folder);
  if (resumed.empty() && died_before_saving(config.checkpoint, config.logging.dir)) return;
  if (!resumed.empty() && logs.exists(MetricsFile::kName)) {
    if (is_among(logs.runs(), resumed)) return;
    throw RequestError(fmt::format(
        "{} holds the log files of {}, not of the checkpoint's ({}); choose another directory",
        logs.quoted(),
        logs.runs().empty() ? fmt::format("an unknown run, as there is no {} there", run_file)
                            : "another run",
        resumed));
  }
  MetricsFile::require_free(logs.path, config.logging.overwrite);
  if (const std::string weights = weights_in(logs.path); !weights.empty()) {
    throw RequestError(
        fmt::format("{} holds the weights of a model ({}), whose config.json the "
                    "run's own would replace; choose another directory",
                    logs.quoted(), weights));
  }
  if (config.logging.overwrite) return;
  if (const std::string there = file_of_a_run(logs.path); !there.empty()) {
    throw RequestError(fmt::format(
        "{} holds {}, but no {}; choose another directory, or set logging.overwrite to replace it",
        logs.quoted(), there, MetricsFile::kName));
  }
}

// Whether the weights in `directory` are the checkpoint's, by their contents: the file times of a
// copied directory don't identify the run that saved them.
bool has_its_weights(const std::string& directory, const Manifest& manifest) {
  bool any = false;
  try {
    for (const auto& [name, saved] : manifest.files) {
      if (name.find('/') != std::string::npos || !name.ends_with(".safetensors")) continue;
      const VerifiedFile file((fs::path(directory) / name).string(), saved);
      if (file.blocks() == 0) return false;
      ByteBuffer bytes;
      file.read(0, bytes);  // only two blocks, since other ranks wait
      file.read(file.blocks() - 1, bytes);
      any = true;
    }
  } catch (const RequestError&) {
    return false;
  }
  return any;
}

// The run that has saved the weights in `directory`, or the other files of their set; "" if
// unknown.
std::string run_of_set(const std::string& directory, const std::vector<FoundCheckpoint>& found) {
  const std::string run = run_of_weights(directory);
  if (!run.empty()) return run;
  const bool any = weights_in(directory).empty();  // without weights, next to checkpoints
  for (const FoundCheckpoint& one : found) {
    if (one.manifest && (any || has_its_weights(directory, *one.manifest))) {
      return one.manifest->run_id;
    }
  }
  return "";
}

void check_weights(const Config& config, const LockedFolder& logs, const LockedFolder& weights,
                   const std::string& resumed) {
  std::error_code ignored;
  if (fs::equivalent(logs.path, weights.path, ignored) ||
      fs::weakly_canonical(logs.path, ignored) == fs::weakly_canonical(weights.path, ignored)) {
    throw RequestError(
        fmt::format("{} is logging.dir, which has a config.json of its own; choose "
                    "another directory, such as \"{}\"",
                    weights.quoted(), (fs::path(weights.path) / "weights").string()));
  }
  if (weights.exists(MetricsFile::kName)) {
    throw RequestError(fmt::format("{} holds the log files of a run ({}); choose another directory",
                                   weights.quoted(), MetricsFile::kName));
  }
  at(weights, check_set_place);
  if (fs::is_directory(fs::path(weights.path) / latest_name, ignored)) {
    throw RequestError(fmt::format("{}: {} is a directory there; choose another directory",
                                   weights.quoted(), latest_name));
  }
  // The average of the weights goes into a folder in it (training.ema_decay).
  const std::string average = weights.path + "/ema";
  const bool averages = config.training.ema_decay > 0;
  if (averages && fs::exists(average, ignored) && !fs::is_directory(average, ignored)) {
    throw RequestError(
        fmt::format("{}: ema there is no directory, which training.ema_decay needs; "
                    "move it away, or choose another directory",
                    weights.quoted()));
  }
  if (config.checkpoint.overwrite) return;
  // A resumed run passed these checks when it began, so it may replace the files of the runs that
  // preceded it. A new run may replace the files of the runs whose logs it replaces; check_logs()
  // has refused a new run that may not replace the logs.
  const bool asked =
      !resumed.empty() || config.logging.overwrite || logs.exists(MetricsFile::kName);
  const auto require_own = [&](const std::string& name, const std::string& run) {
    const bool own = !run.empty() && (run == resumed || (asked && is_among(logs.runs(), run)) ||
                                      (!resumed.empty() && is_among(weights.runs(), run)));
    if (own) return;
    throw RequestError(
        fmt::format("{} holds {} of {}; choose another directory, or set checkpoint.overwrite to "
                    "replace the weights there",
                    weights.quoted(), name, run.empty() ? "something else" : "run " + run));
  };
  const std::vector<FoundCheckpoint> found = find_checkpoints(weights.path);
  if (resumed.empty()) {  // a new run removes them
    for (const FoundCheckpoint& one : found) {
      const std::string unread = one.foreign ? "" : weights.run();
      require_own(fs::path(one.path).filename().string(),
                  one.manifest ? one.manifest->run_id : unread);
    }
  }
  if (const std::string set = set_file_in(weights.path); !set.empty()) {
    require_own(set, run_of_set(weights.path, found));
  }
  if (const std::string set = set_file_in(average); averages && !set.empty()) {
    require_own("ema/" + set, run_of_weights(average));
  }
}

// Signs weights that a copied run recognises as its own by their contents, since the checkpoint
// that identifies them will be removed some day.
void sign_copied(const std::string& directory, const std::string& run) {
  if (weights_in(directory).empty() || !run_of_weights(directory).empty()) return;
  if (run_of_set(directory, find_checkpoints(directory)) != run) return;
  try {
    sign_weights(directory, run);
  } catch (const std::exception&) {
    // The disk may be full; the next start tries again.
  }
}

void check_room(const LockedFolder& weights, std::int64_t bytes) {
  std::error_code ignored;
  fs::path at = fs::absolute(weights.path, ignored);
  while (!fs::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  struct statvfs disk {};
  if (::statvfs(at.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
  const auto free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  const auto freed = static_cast<double>(unfinished_bytes(weights.path));
  if (static_cast<double>(bytes) <= free + freed) return;
  throw RequestError(fmt::format(
      "{}: the weights take {}, but its file system has {} free{}; make room, or "
      "choose another directory",
      weights.quoted(), bytes_text(bytes), bytes_text(free),
      weights_in(weights.path).empty() ? ""
                                       : " (the set there stays until the new one is complete)"));
}

// Checks the folders of a run, and locks the existing ones and their files.
std::vector<LockedFolder> checked_folders(const Config& config, std::int64_t weight_bytes,
                                          const std::string& resumed) {
  std::vector<LockedFolder> folders = folders_of(config.checkpoint.save, config.logging.dir);
  std::vector<std::string> problems;
  const auto attempt = [&](const auto& check) {
    try {
      check();
    } catch (const RequestError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  };
  bool usable[2] = {true, true};
  for (LockedFolder& folder : folders) {
    const std::size_t before = problems.size();
    const bool twice = &folder != &folders.front() && folders.front().folder_lock.get() >= 0;
    std::error_code ignored;
    if (twice && fs::equivalent(folder.path, folders.front().path, ignored)) continue;
    attempt([&] { lock_folder(folder, false, 0); });
    attempt([&] { at(folder, check_output_directory); });
    usable[static_cast<std::size_t>(&folder - folders.data())] = problems.size() == before;
  }
  if (usable[0]) attempt([&] { check_logs(config, folders[0], resumed); });
  if (folders.size() == 2) {
    if (usable[1]) attempt([&] { check_weights(config, folders[0], folders[1], resumed); });
    const int sets = config.training.ema_decay > 0 ? 2 : 1;
    attempt([&] { check_room(folders[1], sets * weight_bytes); });
  }
  if (!problems.empty()) throw RequestError(problems);
  return folders;
}

}  // namespace

std::int64_t saved_bytes(const PrecisionConfig& precision, std::int64_t parameters) {
  return parameters * static_cast<std::int64_t>(size_of(dtype_of(precision.dtype)));
}

bool died_before_saving(const CheckpointConfig& asked, const std::string& log_dir) {
  const bool saves = asked.save_interval > 0 || asked.local.interval > 0;
  if (asked.save.empty() || !saves || asked.resume == "never") return false;
  const LockedFolder logs = read_without_lock(log_dir), weights = read_without_lock(asked.save);
  if (logs.run().empty() || logs.run() != weights.run() || !logs.exists(MetricsFile::kName)) {
    return false;
  }
  // `latest` shows that there have been checkpoints in checkpoint.save, the list of starts that
  // there have been some on nodes.
  const std::vector<FoundCheckpoint> found = find_checkpoints(asked.save);
  if (!found.empty() || weights.exists(latest_name)) return false;
  try {
    if (read_starts(asked.save, logs.run()).any_on_nodes()) return false;
  } catch (const Error&) {  // unknown
    return false;
  }
  return set_file_in(asked.save).empty() || is_among(logs.runs(), run_of_set(asked.save, found));
}

void check_output(const Config& config, std::int64_t weight_bytes, const std::string& resumed) {
  checked_folders(config, weight_bytes, resumed);
}

RunFolders::RunFolders(const Config& config, std::int64_t weight_bytes, const std::string& command,
                       const StartingPoint& start)
    : run_id_(run_of(start)) {
  const std::string resumed = run_id_;
  // A run that begins again because it died early keeps its id: it may die again after it has
  // signed only one folder.
  if (start.again) run_id_ = read_without_lock(config.logging.dir).run();
  if (run_id_.empty()) run_id_ = new_id();
  std::vector<NewDirectories> made;  // destroyed after their locks
  std::vector<LockedFolder> folders = checked_folders(config, weight_bytes, resumed);
  for (const LockedFolder& folder : folders) {
    at(folder, [&](const std::string& path) { made.emplace_back(path); });
  }
  std::vector<const LockedFolder*> fresh;
  try {
    for (LockedFolder& folder : folders) {
      if (folder.lock.get() >= 0) continue;
      lock_folder(folder, true, O_CREAT);
      fresh.push_back(&folder);
    }
    // Another run may have come and gone since the first check.
    check_logs(config, folders[0], resumed);
    if (folders.size() == 2) check_weights(config, folders[0], folders[1], resumed);
    if (!resumed.empty()) {
      at(folders[0], [&](const std::string& path) {
        MetricsFile::require_resumable(path, start.checkpoints.front().iteration);
      });
    }
    require_unchanged(start, config.checkpoint);
    for (const LockedFolder& folder : folders) finish_save(folder.path);
    if (folders.size() == 2 && !resumed.empty()) sign_copied(folders[1].path, resumed);
    if (folders.size() == 2) clear_checkpoints(folders[1].path, resumed.empty());
  } catch (...) {
    std::error_code ignored;
    for (const LockedFolder* folder : fresh) fs::remove(fs::path(folder->path) / run_file, ignored);
    throw;
  }
  std::vector<std::string> earlier = folders[0].runs();
  if (folders.size() == 2) {  // the run whose weights are there must not drop out of the list
    const std::string saved = run_of_weights(folders[1].path);
    if (std::erase(earlier, saved) > 0) earlier.push_back(saved);
  }
  std::erase(earlier, run_id_);  // a resumed run is not earlier than itself
  owner_ = owner_of(run_id_, command, std::move(earlier));
  owner_[bf16_products_key] = config.runtime.bf16_products;
  for (LockedFolder& folder : folders) {
    sign(folder, owner_);
    folders_.push_back(std::move(folder));
  }
  if (start.hold) start.hold->release();
}

void RunFolders::require_held() const {
  for (const LockedFolder& folder : folders_) {
    if (folder.still_held()) continue;
    throw Error(
        fmt::format("{}: this folder, or its {}, was removed or replaced during the "
                    "run: nothing more is written",
                    folder.path, run_file));
  }
}

std::string RunFolders::hold_saves() {
  LockedFolder& held = folders_.back();
  if (held.still_held()) return "";
  LockedFolder anew{.key = held.key, .path = held.path};
  std::error_code ignored;
  const bool same = leads_to(held.path, held.folder_lock);
  const bool nothing = !fs::exists(fs::symlink_status(held.path, ignored)) ||
                       (fs::is_directory(held.path, ignored) && fs::is_empty(held.path, ignored));
  if (!same && !nothing) {
    throw Error(
        fmt::format("{}: this folder was replaced during the run: nothing is "
                    "written there",
                    held.path));
  }
  fs::create_directories(held.path, ignored);  // lock_folder() reports a failure
  if (same) anew.folder_lock = std::move(held.folder_lock);
  lock_folder(anew, true, O_CREAT);
  sign(anew, owner_);
  held = std::move(anew);
  return fmt::format("warning: {} was removed during the run; made again", held.path);
}

FolderLock::FolderLock(const std::string& directory) : made_(directory) {
  LockedFolder folder{.path = directory};
  lock_folder(folder, true, 0);
  locks_.push_back(std::move(folder.lock));
  locks_.push_back(std::move(folder.folder_lock));
}

}  // namespace trident
