#include "checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/files/file.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "iteration-", kSaving = ".trident-saving-",
                           kRemoving = ".trident-removing-", kQuarantined = "set-aside-";

// The bytes of a file. Throws RequestError, with `missing`, if there is none, and if it is a link
// (whose target may belong to anyone) or no regular file.
std::uint64_t own_file(const std::string& path, const std::string& missing) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw RequestError(path + ": " + missing);
    if (errno == EACCES) throw ForeignCheckpoint(path + ": " + std::strerror(errno));
    if (errno != EIO && errno != ENAMETOOLONG && errno != ELOOP) {
      throw_file_error(path, "lstat", errno);
    }
    throw RequestError(path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw RequestError(path + ": not a regular file");
  if (::access(path.c_str(), R_OK) != 0 && (errno == EACCES || errno == EPERM)) {
    throw ForeignCheckpoint(path + ": can't be read: " + std::strerror(errno));
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void check_file(const std::string& folder, const std::string& name, const SavedFile& file) {
  const std::string path = (fs::path(folder) / name).string();
  const std::uint64_t bytes = own_file(path, fmt::format("is missing, {} names it", manifest_name));
  if (bytes != file.bytes) {
    throw RequestError(
        fmt::format("{}: has {} bytes, {} says {}", path, bytes, manifest_name, file.bytes));
  }
}

double loss_of(const FoundCheckpoint& checkpoint) {
  const auto& numbers = checkpoint.manifest->numbers;
  const auto loss = numbers.find("validation_loss");
  if (loss == numbers.end() || !std::holds_alternative<double>(loss->second)) return INFINITY;
  return std::get<double>(loss->second);
}

}  // namespace

std::string checkpoint_name(std::int64_t iteration) {
  return fmt::format("{}{}", kPrefix, iteration);
}

std::optional<std::int64_t> iteration_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t iteration = 0;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  const auto [at, code] = std::from_chars(begin, end, iteration);
  if (code != std::errc() || at != end || name != checkpoint_name(iteration)) return std::nullopt;
  return iteration;
}

bool is_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kQuarantined)) return iteration_of(name).has_value();
  const std::string rest = name.substr(kQuarantined.size());  // a number may follow
  return iteration_of(rest).has_value() ||
         iteration_of(rest.substr(0, rest.rfind('-'))).has_value();
}

std::optional<std::int64_t> iteration_being_saved(const std::string& name) {
  return name.starts_with(kSaving) ? iteration_of(name.substr(kSaving.size())) : std::nullopt;
}

std::string saving_path(const std::string& save, std::int64_t iteration) {
  return (fs::path(save) / fmt::format("{}{}", kSaving, checkpoint_name(iteration))).string();
}

Manifest open_checkpoint(const std::string& folder) {
  const std::string path = (fs::path(folder) / manifest_name).string();
  struct stat status {};  // if that fails, the next call fails, too
  const std::string inner = fs::path(path).parent_path().string();
  if (::lstat(inner.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    throw RequestError(inner + ": is a link");
  }
  own_file(path, "is missing: there is no complete checkpoint");
  Manifest manifest = parse_manifest(read_file(path, max_manifest_bytes), path);
  for (const auto& [name, file] : manifest.files) check_file(folder, name, file);
  return manifest;
}

std::vector<FoundCheckpoint> find_checkpoints(const std::string& save) {
  std::vector<FoundCheckpoint> list;
  std::error_code code, ignored;
  const fs::directory_iterator entries(save, code);
  if (code && code != std::errc::no_such_file_or_directory && code != std::errc::not_a_directory) {
    // Don't return an empty list: a run would then start afresh and replace the contents.
    throw RequestError(fmt::format("{}: can't be listed: {}", save, code.message()));
  }
  for (const auto& entry : entries) {
    const auto iteration = iteration_of(entry.path().filename().string());
    if (!iteration) continue;
    FoundCheckpoint& found = list.emplace_back();
    found.path = entry.path().string();
    found.iteration = *iteration;
    if (entry.is_symlink(ignored) || !entry.is_directory(ignored)) {
      found.problem = found.path + ": is a link or no directory";
      continue;
    }
    try {
      found.manifest = open_checkpoint(found.path);
      if (found.manifest->iteration != *iteration) {
        found.problem =
            fmt::format("{}: holds iteration {}", found.path, found.manifest->iteration);
        found.manifest.reset();
      }
    } catch (const ForeignCheckpoint& error) {
      found.problem = error.what();
      found.foreign = true;
    } catch (const RequestError& error) {  // an Error may pass; it is no damage
      found.problem = error.what();
    }
    // If a run has removed it meanwhile, it isn't damaged.
    if (!found.problem.empty() && !fs::exists(fs::symlink_status(entry.path(), ignored))) {
      list.pop_back();
    }
  }
  std::ranges::sort(list, {}, &FoundCheckpoint::iteration);
  return list;
}

std::vector<FoundCheckpoint> newest_first(std::vector<FoundCheckpoint> found) {
  std::erase_if(found, [](const FoundCheckpoint& one) { return !one.manifest.has_value(); });
  std::ranges::sort(found, [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    if (a.manifest->sequence != b.manifest->sequence) {
      return a.manifest->sequence > b.manifest->sequence;
    }
    return a.iteration > b.iteration;
  });
  return found;
}

void clear_unfinished(FileSystem& files, const std::string& save) {
  std::error_code ignored;
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(save, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool folder = name.starts_with(kSaving) || name.starts_with(kRemoving);
    if (folder || name.starts_with(fmt::format("{}.tmp-", latest_name))) {
      left.push_back(entry.path().string());
    }
  }
  for (const std::string& path : left) files.remove(path);
}

void remove_checkpoint(FileSystem& files, const std::string& save, std::int64_t iteration) {
  const fs::path in = save;
  const std::string name = checkpoint_name(iteration);
  const std::string aside = (in / fmt::format("{}{}", kRemoving, name)).string();
  files.remove(aside);
  files.rename((in / name).string(), aside);
  files.sync_directory(save);
  files.remove(aside);
}

std::string quarantine(FileSystem& files, const std::string& save, std::int64_t iteration) {
  const std::string name = checkpoint_name(iteration);
  const std::string first = (fs::path(save) / fmt::format("{}{}", kQuarantined, name)).string();
  std::string aside = first;
  for (int i = 2; fs::exists(fs::symlink_status(aside)); ++i)
    aside = fmt::format("{}-{}", first, i);
  files.rename((fs::path(save) / name).string(), aside);
  files.sync_directory(save);
  return aside;
}

std::vector<std::string> quarantined_in(const std::string& save) {
  std::vector<std::string> list;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(save, ignored)) {
    if (entry.path().filename().string().starts_with(kQuarantined))
      list.push_back(entry.path().string());
  }
  std::ranges::sort(list);
  return list;
}

std::vector<std::int64_t> iterations_to_remove(const std::vector<FoundCheckpoint>& found,
                                               const Retention& retention) {
  if (retention.limit == 0) return {};
  std::set<std::int64_t> stays;
  const std::vector<FoundCheckpoint> newest = newest_first(found);
  for (std::size_t i = 0; i < newest.size(); ++i) {
    const std::int64_t iteration = newest[i].iteration;
    const bool milestone = retention.keep_every > 0 && iteration % retention.keep_every == 0;
    if (static_cast<std::int64_t>(i) < retention.limit || milestone) stays.insert(iteration);
  }
  const auto best = std::ranges::min_element(newest, {}, loss_of);
  if (retention.keep_best && best != newest.end() && std::isfinite(loss_of(*best))) {
    stays.insert(best->iteration);
  }
  std::vector<std::int64_t> gone;
  for (const FoundCheckpoint& one : newest) {
    if (!stays.contains(one.iteration)) gone.push_back(one.iteration);
  }
  return gone;
}

}  // namespace trident
