#include "training/weights_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr auto kFolder = ".trident-saving";
constexpr auto kConfig = "config.json";
constexpr auto kGeneration = "generation_config.json";
constexpr auto kWhole = "model.safetensors";
constexpr auto kIndex = "model.safetensors.index.json";

[[noreturn]] void fail(const fs::path& path, const char* operation) {
  throw Error(fmt::format("{}: {} failed: {}", path.string(), operation,
                          std::system_category().message(errno)));
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, "removing it");
}

// So that what was done there is not overtaken, after a crash of the machine, by what comes next.
void sync(const fs::path& directory) {
  const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() >= 0) ::fsync(file.get());
}

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The shards that an index names; none where it can't be read.
std::set<std::string> shards_of(const fs::path& index) {
  std::set<std::string> names;
  if (!there(index)) return names;
  const auto json = json_or_null(read_file(index.string()));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return names;
  }
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) continue;
    const auto name = file.get<std::string>();
    if (name == fs::path(name).filename() && name.ends_with(".safetensors")) names.insert(name);
  }
  return names;
}

// Goes on from wherever an earlier call has ended.
void move_set(const fs::path& directory, const fs::path& from) {
  remove_file(directory / kConfig);
  sync(directory);
  // Weights move in the order of their names, an index last, then what goes along; once no weight
  // is left to move, what lies in the directory is the new set's.
  if (there(from / kWhole) || there(from / kIndex)) {
    const std::set<std::string> kept = shards_of(from / kIndex);
    for (const std::string& name : shards_of(directory / kIndex)) {
      if (!kept.contains(name)) remove_file(directory / name);
    }
    remove_file(directory / kIndex);
    if (!there(from / kWhole)) remove_file(directory / kWhole);
    remove_file(directory / kGeneration);
  }
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(from)) names.push_back(file.path().filename());
  std::ranges::sort(names, {}, [](const std::string& name) {
    const bool weights = name.ends_with(".safetensors");
    return std::pair(name == kConfig ? 3 : name == kIndex ? 1 : weights ? 0 : 2, name);
  });
  for (const std::string& name : names) {
    if (name == kConfig) sync(directory);
    if (::rename((from / name).c_str(), (directory / name).c_str()) != 0) {
      fail(directory / name, "renaming into place");
    }
  }
  sync(directory);
  std::error_code ignored;
  fs::remove(from, ignored);
}

// NAME.tmp-<digits>-<digits>, the form of AtomicFile, of a file that runs write.
bool is_temporary(const std::string& name) {
  const std::size_t at = name.rfind(".tmp-");
  if (at == std::string::npos) return false;
  const std::string of = name.substr(0, at);
  const char* const kinds[]{"probe", ".json", ".safetensors", ".html", ".svg"};
  if (std::ranges::none_of(kinds, [&](const char* kind) { return of.ends_with(kind); })) {
    return false;
  }
  const std::string_view numbers = std::string_view(name).substr(at + 5);
  const std::size_t dash = numbers.find('-');
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && digits(numbers.substr(0, dash)) &&
         digits(numbers.substr(dash + 1));
}

}  // namespace

NewWeights::NewWeights(const std::string& directory)
    : directory_(directory), path_((fs::path(directory) / kFolder).string()) {
  fs::create_directories(directory);
  finish_save(directory);
  fs::create_directory(path_);
}

NewWeights::~NewWeights() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void NewWeights::commit() {
  const std::string from = std::exchange(path_, "");  // from here on the set is not given up
  move_set(directory_, from);
}

void finish_save(const std::string& directory) {
  const fs::path from = fs::path(directory) / kFolder;
  std::error_code ignored;
  if (fs::is_symlink(from, ignored)) remove_file(from);  // what it leads to is not this save's
  if (there(from / kConfig)) move_set(directory, from);
  fs::remove_all(from, ignored);
  for (const auto& file : fs::directory_iterator(directory, ignored)) {
    if (file.is_regular_file(ignored) && is_temporary(file.path().filename())) {
      fs::remove(file.path(), ignored);
    }
  }
}

std::string unfinished_save(const std::string& directory) {
  const fs::path from = fs::path(directory) / kFolder;
  return there(from / kConfig) ? from.string() : "";
}

std::string weights_in(const std::string& directory) {
  for (const std::string& name :
       {std::string(kWhole), std::string(kIndex), std::string(kFolder) + "/" + kConfig}) {
    if (there(fs::path(directory) / name)) return name;
  }
  return "";
}

std::string set_file_in(const std::string& directory) {
  if (there(fs::path(directory) / kConfig)) return kConfig;
  for (const char* name : set_companions) {
    if (there(fs::path(directory) / name)) return name;
  }
  return "";
}

}  // namespace trident
