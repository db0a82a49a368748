#include "training/run/run_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/json.h"
#include "training/checkpoint/checkpoint_folder.h"
#include "training/hugging_face/weights_folder.h"
#include "training/report/earlier_run.h"
#include "training/report/metrics_file.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr auto kFile = ".trident-run";
constexpr std::ptrdiff_t kRunsKept = 64;
constexpr std::size_t kCommandKept = 4000, kFileRead = 16384;  // bytes
constexpr auto kLogs = "/logging/dir";
constexpr auto kWeights = "/checkpoint/save";

std::string quoted(const char* key, const std::string& directory) {
  return key == nullptr ? directory : fmt::format("config: {}: \"{}\"", key, directory);
}

// What a folder's file says, an empty object where it says nothing.
nlohmann::json owner_in(int file) {
  char text[kFileRead];
  const ssize_t size = ::pread(file, text, sizeof text, 0);
  auto json = json_or_null({text, static_cast<std::size_t>(std::max<ssize_t>(0, size))});
  return json.is_object() ? json : nlohmann::json::object();
}

std::string text_of(const nlohmann::json& owner, const char* key) {
  const auto it = owner.find(key);
  if (it == owner.end()) return "unknown";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// One of the folders, as it was found.
struct Folder {
  const char* key = nullptr;  // of the config
  std::string path;
  FileDescriptor lock;         // of the file; none where there is none yet
  FileDescriptor folder_lock;  // none where there is no folder yet
  nlohmann::json owner = nlohmann::json::object();

  bool exists(const std::string& name) const {
    std::error_code ignored;
    return fs::exists(fs::path(path) / name, ignored);
  }
  // "" where the file doesn't say.
  std::string run() const {
    const auto it = owner.find("run_id");
    return it != owner.end() && it->is_string() ? it->get<std::string>() : "";
  }
  // The runs that were here, the last one included.
  std::vector<std::string> runs() const {
    std::vector<std::string> ids;
    if (const auto it = owner.find("earlier"); it != owner.end() && it->is_array()) {
      for (const auto& id : *it) {
        if (id.is_string()) ids.push_back(id.get<std::string>());
      }
    }
    ids.push_back(run());
    std::erase(ids, "");
    return ids;
  }
};

// Locks an open file or folder; true where another process has it, and not just for the moment that
// a check takes. File systems without locks are taken as they are.
bool taken(const FileDescriptor& opened) {
  for (int attempt = 0; attempt < 15; ++attempt) {
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Whether the name still leads to what was opened; of what wasn't there there is nothing to ask.
bool bears(const std::string& name, const FileDescriptor& opened) {
  struct stat found {};
  struct stat own {};
  return opened.get() < 0 ||
         (::stat(name.c_str(), &found) == 0 && ::fstat(opened.get(), &own) == 0 &&
          found.st_dev == own.st_dev && found.st_ino == own.st_ino);
}

// Takes hold of the folder and of its file, where there are such; `made`: of the folder in any
// case, and with O_CREAT of the file, made once the folder is held. RequestError where another
// process has them.
void lock(Folder& folder, bool made, int create) {
  const std::string file = (fs::path(folder.path) / kFile).string();
  const auto refuse = [&](const std::string& why) {
    throw RequestError(fmt::format("{}: {}: {}", quoted(folder.key, folder.path), file, why));
  };
  if (folder.folder_lock.get() < 0) {
    folder.folder_lock =
        FileDescriptor(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (made && folder.folder_lock.get() < 0) refuse("was removed meanwhile; try again");
  const bool folder_held = folder.folder_lock.get() >= 0 && taken(folder.folder_lock);
  // What a link leads to is nobody's to sign; a pipe is nobody's to wait for.
  FileDescriptor opened(
      ::open(file.c_str(),
             O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (folder_held ? 0 : create), 0666));
  const int code = errno;
  struct stat status {};
  if (opened.get() >= 0 && (::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode))) {
    refuse("not a regular file");
  }
  if (opened.get() < 0 && code != ENOENT && code != ENOTDIR) {  // as require_output_directory will
    refuse(code == ELOOP ? "is a link; remove it"
                         : "can't open: " + std::system_category().message(code));
  }
  const bool held = opened.get() >= 0 && taken(opened);
  if (opened.get() >= 0) folder.owner = owner_in(opened.get());  // as the lock finds it
  if (!held && !folder_held) {
    // Somebody may have removed what was opened, and a third one have made and locked it anew.
    const bool lost = made && create != 0 && opened.get() < 0;
    if (lost || !bears(file, opened) || !bears(folder.path, folder.folder_lock)) {
      refuse("was replaced meanwhile; try again");
    }
    folder.lock = std::move(opened);
    return;
  }
  if (!held) {
    throw RequestError(fmt::format(
        "{} is in use: another process saves weights there; wait until that has ended, or choose "
        "another directory",
        quoted(folder.key, folder.path)));
  }
  throw RequestError(
      fmt::format("{} is in use: process {} on {} has it since {} ({}, run id {}); wait until "
                  "that has ended, or choose another directory",
                  quoted(folder.key, folder.path), text_of(folder.owner, "pid"),
                  text_of(folder.owner, "host"), text_of(folder.owner, "since"),
                  text_of(folder.owner, "command"), text_of(folder.owner, "run_id")));
}

nlohmann::ordered_json owner(const std::string& run_id, const std::string& command,
                             std::vector<std::string> earlier) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host) == 0) host[sizeof host - 1] = '\0';
  if (earlier.size() > kRunsKept) earlier.erase(earlier.begin(), earlier.end() - kRunsKept);
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return {{"run_id", run_id},
          {"host", host},
          {"pid", ::getpid()},
          {"since", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
          {"command", command.substr(0, kCommandKept)},
          {"earlier", std::move(earlier)}};
}

// A full disk keeps the text out; the lock holds all the same. Whoever dies on the way leaves the
// old text or the new one.
void sign(const Folder& folder, const nlohmann::ordered_json& owner) {
  std::string text = json_text(owner, 2) + "\n";
  const std::size_t size = text.size();
  struct stat old {};
  if (::fstat(folder.lock.get(), &old) != 0) return;
  const auto before = static_cast<std::size_t>(old.st_size);
  text.resize(std::max(size, std::min(before, kFileRead)), ' ');  // more of it nobody reads
  const ssize_t written = ::pwrite(folder.lock.get(), text.data(), text.size(), 0);
  if (written == static_cast<ssize_t>(text.size())) {
    [[maybe_unused]] const int cut = ::ftruncate(folder.lock.get(), static_cast<off_t>(size));
  }
}

// Removes what dead saves have left, and `all` checkpoints of a run that doesn't go on.
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

std::vector<Folder> folders_of(const Config& config) {
  std::vector<Folder> folders(config.checkpoint.save.empty() ? 1 : 2);
  folders[0] = {.key = kLogs, .path = config.logging.dir};
  if (folders.size() == 2) folders[1] = {.key = kWeights, .path = config.checkpoint.save};
  return folders;
}

// What is wrong with a folder, told with its key.
void at(const Folder& folder, const std::function<void(const std::string&)>& check) {
  try {
    check(folder.path);
  } catch (const RequestError& error) {
    throw error.at(fmt::format("config: {}: ", folder.key));
  }
}

// The folder as its file describes it, without a lock.
Folder described(const std::string& path) {
  Folder folder{.path = path};
  const FileDescriptor file(
      ::open((fs::path(path) / kFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() >= 0) folder.owner = owner_in(file.get());
  return folder;
}

void check_logs(const Config& config, const Folder& logs, const std::string& resumed) {
  at(logs, check_no_save_folder);
  if (resumed.empty() && died_before_saving(config)) return;
  if (!resumed.empty() && logs.exists(MetricsFile::kName)) {
    const std::vector<std::string> runs = logs.runs();
    if (std::ranges::find(runs, resumed) != runs.end()) return;
    throw RequestError(fmt::format(
        "{} holds the log files of another run than that of the checkpoint ({}); choose another "
        "directory",
        quoted(logs.key, logs.path), resumed));
  }
  MetricsFile::require_free(logs.path, config.logging.overwrite);
  if (const std::string weights = weights_in(logs.path); !weights.empty()) {
    throw RequestError(
        fmt::format("{} holds the weights of a model ({}), whose config.json the "
                    "run's own would replace; choose another directory",
                    quoted(logs.key, logs.path), weights));
  }
  if (config.logging.overwrite) return;
  if (const std::string there = file_of_a_run(logs.path); !there.empty()) {
    throw RequestError(fmt::format(
        "{} holds {}, but no {}; choose another directory, or set logging.overwrite to replace it",
        quoted(logs.key, logs.path), there, MetricsFile::kName));
  }
}

// A checkpoint of a run that doesn't go on, or a set of weights; "" where there is none.
std::string to_be_replaced(const Folder& weights, bool resumes) {
  if (!resumes) {
    const std::vector<FoundCheckpoint> found = find_checkpoints(weights.path);
    if (!found.empty()) return fs::path(found.back().path).filename().string();
  }
  return set_file_in(weights.path);
}

// The run that has saved what is there; "" where that isn't known.
std::string run_of_saved(const std::string& directory) {
  std::string run = run_of_weights(directory);
  for (const FoundCheckpoint& one : find_checkpoints(directory)) {
    if (!one.manifest) continue;
    if (!run.empty() && run != one.manifest->run_id) return "";
    run = one.manifest->run_id;
  }
  return run;
}

void check_weights(const Config& config, const Folder& logs, const Folder& weights,
                   const std::string& resumed) {
  std::error_code ignored;
  if (fs::equivalent(logs.path, weights.path, ignored) ||
      fs::weakly_canonical(logs.path, ignored) == fs::weakly_canonical(weights.path, ignored)) {
    throw RequestError(fmt::format(
        "{} is logging.dir, which has a config.json of its own; choose "
        "another directory, such as \"{}\"",
        quoted(weights.key, weights.path), (fs::path(weights.path) / "weights").string()));
  }
  if (weights.exists(MetricsFile::kName)) {
    throw RequestError(fmt::format("{} holds the log files of a run ({}); choose another directory",
                                   quoted(weights.key, weights.path), MetricsFile::kName));
  }
  at(weights, check_set_place);
  const std::string there = to_be_replaced(weights, !resumed.empty());
  const std::string run = run_of_saved(weights.path);
  const std::vector<std::string> runs = logs.runs();
  // Replaced with their logs; where those are there and stay, check_logs() has refused that.
  const bool asked = config.logging.overwrite || logs.exists(MetricsFile::kName);
  const bool own = asked && std::find(runs.begin(), runs.end(), run) != runs.end();
  if (there.empty() || own || (!resumed.empty() && run == resumed) || config.checkpoint.overwrite)
    return;
  throw RequestError(fmt::format(
      "{} holds {} of {}; choose another directory, or set checkpoint.overwrite to "
      "replace the weights there",
      quoted(weights.key, weights.path), there, run.empty() ? "something else" : "run " + run));
}

void check_room(const Folder& weights, std::int64_t bytes) {
  std::error_code ignored;
  fs::path at = fs::absolute(weights.path, ignored);
  while (!fs::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  struct statvfs disk {};
  if (::statvfs(at.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
  const auto free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  const auto freed = static_cast<double>(unfinished_bytes(weights.path));
  if (static_cast<double>(bytes) <= free + freed) return;
  throw RequestError(fmt::format(
      "{}: the weights take {:.1f} MB, but its file system has {:.1f} MB free{}; make room, or "
      "choose another directory",
      quoted(weights.key, weights.path), static_cast<double>(bytes) * 1e-6, free * 1e-6,
      weights_in(weights.path).empty() ? "" : " (the set there stays until the new one is whole)"));
}

// The folders of a run, locked where they have a file.
std::vector<Folder> checked_folders(const Config& config, std::int64_t weight_bytes,
                                    const std::string& resumed) {
  std::vector<Folder> folders = folders_of(config);
  std::vector<std::string> problems;
  const auto attempt = [&](const auto& check) {
    try {
      check();
    } catch (const RequestError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  };
  bool usable[2] = {true, true};
  for (Folder& folder : folders) {
    const std::size_t before = problems.size();
    const bool twice = &folder != &folders.front() && folders.front().folder_lock.get() >= 0;
    std::error_code ignored;
    if (twice && fs::equivalent(folder.path, folders.front().path, ignored)) continue;
    attempt([&] { lock(folder, false, 0); });
    attempt([&] { at(folder, check_output_directory); });
    usable[static_cast<std::size_t>(&folder - folders.data())] = problems.size() == before;
  }
  if (usable[0]) attempt([&] { check_logs(config, folders[0], resumed); });
  if (folders.size() == 2) {
    if (usable[1]) attempt([&] { check_weights(config, folders[0], folders[1], resumed); });
    attempt([&] { check_room(folders[1], weight_bytes); });
  }
  if (!problems.empty()) throw RequestError(problems);
  return folders;
}

}  // namespace

std::int64_t saved_bytes(const Config& config, std::int64_t parameters) {
  return parameters * static_cast<std::int64_t>(size_of(dtype_of(config.precision.dtype)));
}

bool died_before_saving(const Config& config) {
  const CheckpointConfig& asked = config.checkpoint;
  if (asked.save.empty() || asked.save_interval == 0 || asked.resume == "never") return false;
  const Folder logs = described(config.logging.dir), weights = described(asked.save);
  return !logs.run().empty() && logs.run() == weights.run() && logs.exists(MetricsFile::kName) &&
         to_be_replaced(weights, false).empty();
}

void check_output(const Config& config, std::int64_t weight_bytes, const std::string& resumed) {
  checked_folders(config, weight_bytes, resumed);
}

RunFolders::RunFolders(const Config& config, std::int64_t weight_bytes, const std::string& command,
                       const std::string& resumed)
    : run_id_(resumed.empty() ? new_id() : resumed) {
  std::vector<NewDirectories> made;  // go after their locks
  std::vector<Folder> folders = checked_folders(config, weight_bytes, resumed);
  for (const Folder& folder : folders) {
    at(folder, [&](const std::string& path) { made.emplace_back(path); });
  }
  std::vector<const Folder*> fresh;
  try {
    for (Folder& folder : folders) {
      if (folder.lock.get() >= 0) continue;
      lock(folder, true, O_CREAT);
      fresh.push_back(&folder);
    }
    // Another run may have come and gone since that was looked at.
    check_logs(config, folders[0], resumed);
    if (folders.size() == 2) check_weights(config, folders[0], folders[1], resumed);
    for (const Folder& folder : folders) finish_save(folder.path);
    if (folders.size() == 2) clear_checkpoints(folders[1].path, resumed.empty());
  } catch (...) {
    std::error_code ignored;
    for (const Folder* folder : fresh) fs::remove(fs::path(folder->path) / kFile, ignored);
    throw;
  }
  std::vector<std::string> earlier = folders[0].runs();
  if (folders.size() == 2) {  // what those have saved there stays theirs, however often it fails
    const std::string saved = run_of_weights(folders[1].path);
    if (std::erase(earlier, saved) > 0) earlier.push_back(saved);
  }
  std::erase(earlier, run_id_);  // a run that goes on is not before itself
  const auto text = owner(run_id_, command, std::move(earlier));
  for (Folder& folder : folders) {
    sign(folder, text);
    paths_.push_back(folder.path);
    locks_.push_back(std::move(folder.lock));
    locks_.push_back(std::move(folder.folder_lock));
  }
}

void RunFolders::require_held() const {
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (bears((fs::path(paths_[i]) / kFile).string(), locks_[2 * i]) &&
        bears(paths_[i], locks_[2 * i + 1])) {
      continue;
    }
    throw Error(
        fmt::format("{}: this folder, or its {}, was removed or replaced while the run "
                    "went on: nothing more is written",
                    paths_[i], kFile));
  }
}

FolderLock::FolderLock(const std::string& directory) : made_(directory) {
  Folder folder{.path = directory};
  lock(folder, true, 0);
  locks_.push_back(std::move(folder.lock));
  locks_.push_back(std::move(folder.folder_lock));
}

}  // namespace trident
