#include "run/folders/locked_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/json.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::ptrdiff_t kRunsKept = 64;
constexpr std::size_t kCommandKept = 4000, kFileRead = 16384;  // bytes

// The contents of a folder's file; an empty object if the file has none.
nlohmann::json owner_in(int file) {
  char text[kFileRead];
  const ssize_t size = ::pread(file, text, sizeof text, 0);
  auto owner = json_or_null({text, static_cast<std::size_t>(std::max<ssize_t>(0, size))});
  return owner.is_object() ? owner : nlohmann::json::object();
}

std::string text_of(const nlohmann::json& owner, const char* key) {
  const auto it = owner.find(key);
  if (it == owner.end()) return "unknown";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// Locks an open file or folder. Returns true if another process holds it for longer than a check
// takes. On a file system without locks it returns false and holds no lock.
bool taken(const FileDescriptor& opened) {
  for (int attempt = 0; attempt < 15; ++attempt) {
    if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

bool leads_to(const std::string& name, const FileDescriptor& opened) {
  struct stat found {};
  struct stat own {};
  return opened.get() < 0 ||
         (::stat(name.c_str(), &found) == 0 && ::fstat(opened.get(), &own) == 0 &&
          found.st_dev == own.st_dev && found.st_ino == own.st_ino);
}

std::string LockedFolder::quoted() const {
  return key == nullptr ? path : fmt::format("config: {}: \"{}\"", key, path);
}

bool LockedFolder::exists(const std::string& name) const {
  std::error_code ignored;
  return fs::exists(fs::path(path) / name, ignored);
}

std::string LockedFolder::run() const {
  const auto it = owner.find("run_id");
  return it != owner.end() && it->is_string() ? it->get<std::string>() : "";
}

std::vector<std::string> LockedFolder::runs() const {
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

bool LockedFolder::still_held() const {
  return leads_to((fs::path(path) / run_file).string(), lock) && leads_to(path, folder_lock);
}

void lock_folder(LockedFolder& folder, bool made, int create) {
  const std::string file = (fs::path(folder.path) / run_file).string();
  const auto refuse = [&](const std::string& why) {
    throw RequestError(fmt::format("{}: {}: {}", folder.quoted(), file, why));
  };
  if (folder.folder_lock.get() < 0) {
    folder.folder_lock =
        FileDescriptor(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (made && folder.folder_lock.get() < 0) refuse("was removed meanwhile; try again");
  const bool folder_held = folder.folder_lock.get() >= 0 && taken(folder.folder_lock);
  // The run must not write through a link, nor wait for the other end of a pipe.
  FileDescriptor opened(
      ::open(file.c_str(),
             O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (folder_held ? 0 : create), 0666));
  const int code = errno;
  struct stat status {};
  if (opened.get() >= 0 && (::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode))) {
    refuse("not a regular file");
  }
  if (opened.get() < 0 && code != ENOENT &&
      code != ENOTDIR) {  // check_output_directory() reports these two
    refuse(code == ELOOP ? "is a link; remove it"
                         : "can't open: " + std::system_category().message(code));
  }
  const bool held = opened.get() >= 0 && taken(opened);
  if (opened.get() >= 0) folder.owner = owner_in(opened.get());  // as it is under the lock
  if (!held && !folder_held) {
    // Another process may have removed the opened file, and a third one may have made and locked a
    // new one.
    const bool lost = made && create != 0 && opened.get() < 0;
    if (lost || !leads_to(file, opened) || !leads_to(folder.path, folder.folder_lock)) {
      refuse("was replaced meanwhile; try again");
    }
    folder.lock = std::move(opened);
    return;
  }
  if (!held) {
    throw RequestError(fmt::format(
        "{} is in use: another process saves weights there; wait until that has ended, or choose "
        "another directory",
        folder.quoted()));
  }
  throw RequestError(
      fmt::format("{} is in use: process {} on {} has it since {} ({}, run id {}); wait until "
                  "that has ended, or choose another directory",
                  folder.quoted(), text_of(folder.owner, "pid"), text_of(folder.owner, "host"),
                  text_of(folder.owner, "since"), text_of(folder.owner, "command"),
                  text_of(folder.owner, "run_id")));
}

StartLock::StartLock(const std::string& save)
    : path_((fs::path(save) / ".trident-starting").string()) {
  for (int attempt = 0; attempt < 15; ++attempt) {
    FileDescriptor opened(
        ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (opened.get() < 0) return;
    if (taken(opened)) {
      throw Error(
          fmt::format("config: /checkpoint/save: \"{}\": another start of the run there is under "
                      "way (it holds {}); "
                      "wait until it trains, or has ended",
                      save, path_));
    }
    if (!leads_to(path_, opened)) continue;  // its last holder has removed it
    lock_ = std::move(opened);
    return;
  }
}

void StartLock::release() {
  if (lock_.get() < 0) return;
  ::unlink(path_.c_str());
  lock_ = FileDescriptor();
}

nlohmann::ordered_json owner_of(const std::string& run_id, const std::string& command,
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

void sign(const LockedFolder& folder, const nlohmann::ordered_json& owner) {
  std::string text = json_text(owner, 2) + "\n";
  const std::size_t size = text.size();
  struct stat old {};
  if (::fstat(folder.lock.get(), &old) != 0) return;
  const auto before = static_cast<std::size_t>(old.st_size);
  text.resize(std::max(size, std::min(before, kFileRead)), ' ');  // readers stop at kFileRead
  const ssize_t written = ::pwrite(folder.lock.get(), text.data(), text.size(), 0);
  if (written == static_cast<ssize_t>(text.size())) {
    [[maybe_unused]] const int cut = ::ftruncate(folder.lock.get(), static_cast<off_t>(size));
  }
}

LockedFolder read_without_lock(const std::string& path) {
  LockedFolder folder{.path = path};
  const FileDescriptor file(
      ::open((fs::path(path) / run_file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() >= 0) folder.owner = owner_in(file.get());
  return folder;
}

}  // namespace trident
