#include "formats/hugging_face/weights_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr auto kFolder = ".trident-saving";
constexpr auto kConfig = "config.json";
constexpr auto kGenerationConfig = "generation_config.json";
constexpr auto kWhole = "model.safetensors";
constexpr auto kIndex = "model.safetensors.index.json";
constexpr auto kOwner = ".trident-weights";
constexpr std::uint64_t kMaxOwner = 16 << 20, kMaxOldIndex = 1 << 30;  // bytes
// The files that a new set removes if it doesn't replace them. Shards follow from their index.
constexpr std::array kOfOldSet{kWhole, kIndex, kGenerationConfig, kOwner};

[[noreturn]] void fail(const fs::path& path, const char* operation) {
  throw Error(fmt::format("{}: {} failed: {}", path.string(), operation,
                          std::system_category().message(errno)));
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, "removing it");
}

// Makes earlier changes to the directory durable before later ones, in case the machine crashes.
void sync(const fs::path& directory) {
  sync_directory(directory.string());
}

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The shards that an index names; none if it can't be read.
std::set<std::string> shards_of(const fs::path& index) {
  std::set<std::string> names;
  if (!there(index)) return names;
  nlohmann::json parsed;
  try {
    parsed = json_or_null(read_file(index.string(), kMaxOldIndex));
  } catch (const RequestError&) {
    return names;
  }
  if (!parsed.is_object() || !parsed.contains("weight_map") || !parsed["weight_map"].is_object()) {
    return names;
  }
  for (const auto& [tensor, file] : parsed["weight_map"].items()) {
    if (!file.is_string()) continue;
    const auto name = file.get<std::string>();
    if (name == fs::path(name).filename() && name.ends_with(".safetensors")) names.insert(name);
  }
  return names;
}

// Weights are moved first. If none remain, the weights in the directory are those of the new set.
bool weights_to_move(const fs::path& from) {
  return there(from / kWhole) || there(from / kIndex);
}

// "" if no file has this name or the file can be replaced.
std::string why_not_replaced(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status)) return "";
  return path.string() + (fs::is_directory(status) ? ": is a directory" : ": not a regular file");
}

bool is_weights(const std::string& name) {
  return name == kIndex ||
         (name.ends_with(".safetensors") && name == fs::path(name).filename().string());
}

// The size and modification time of an existing file. Renaming changes neither.
nlohmann::json print_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return nullptr;
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

// The contents of .trident-weights; null if it can't be read.
nlohmann::json owner_in(const fs::path& file) {
  if (!there(file)) return nullptr;
  try {
    return json_or_null(read_file(file.string(), kMaxOwner));
  } catch (const RequestError&) {
    return nullptr;
  }
}

// The tokenizer's files that a run has saved with its weights, provided that all of them are
// unchanged: they stay or are removed together.
std::vector<std::string> own_tokenizer(const fs::path& directory) {
  std::vector<std::string> names;
  const nlohmann::json owner = owner_in(directory / kOwner);
  const auto prints = owner.is_object() ? owner.find("companions") : owner.end();
  if (prints == owner.end() || !prints->is_object()) return names;
  for (const char* name : set_companions) {
    const auto print = prints->find(name);
    if (name == std::string_view(kGenerationConfig)) continue;  // removed in any case
    if (print == prints->end() || print->is_null()) continue;
    const nlohmann::json now = print_of(directory / name);
    if (now.is_null()) continue;
    if (now != *print) return {};
    names.emplace_back(name);
  }
  return names;
}

// Continues from the point at which an earlier call was interrupted.
void move_set(const fs::path& directory, const fs::path& from) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(from)) names.push_back(file.path().filename());
  const auto check = [&](const std::string& name) {  // before the old set is touched
    const std::string why = why_not_replaced(directory / name);
    if (!why.empty()) throw Error(why + "; the new weights stay in " + from.string());
  };
  std::ranges::for_each(names, check);
  std::ranges::for_each(kOfOldSet, check);
  const std::set<std::string> old = shards_of(directory / kIndex), kept = shards_of(from / kIndex);
  remove_file(directory / kConfig);
  sync(directory);
  // Weights are moved in the order of their names, then an index, then the companions.
  if (weights_to_move(from)) {
    for (const std::string& name : old) {
      const bool file = why_not_replaced(directory / name).empty();
      if (file && !kept.contains(name)) remove_file(directory / name);
    }
    for (const std::string& name : own_tokenizer(directory)) {  // kOwner goes last
      if (!there(from / name)) remove_file(directory / name);
    }
    for (const char* name : kOfOldSet) {
      if (name != std::string_view(kWhole) || !there(from / name)) remove_file(directory / name);
    }
  }
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

// NAME.tmp-<digits>-<digits>, AtomicFile's form, for a file that runs write.
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
  const std::string from = std::exchange(path_, "");  // an error must no longer remove it
  move_set(directory_, from);
}

void finish_save(const std::string& directory) {
  const fs::path from = fs::path(directory) / kFolder;
  std::error_code ignored;
  if (fs::is_symlink(from, ignored)) remove_file(from);  // its target isn't this save's
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
  if (const std::string weights = weights_in(directory); !weights.empty()) return weights;
  if (there(fs::path(directory) / kConfig)) return kConfig;
  for (const char* name : set_companions) {
    if (there(fs::path(directory) / name)) return name;
  }
  return "";
}

std::vector<std::string> left_of_old_set(const std::string& directory) {
  std::vector<std::string> names;
  if (!weights_to_move(unfinished_save(directory))) return names;
  for (const std::string& name : own_tokenizer(directory)) {
    if (!there(fs::path(unfinished_save(directory)) / name)) names.push_back(name);
  }
  for (const char* name : kOfOldSet) {
    if (there(fs::path(directory) / name)) names.emplace_back(name);
  }
  return names;
}

void check_no_save_folder(const std::string& directory) {
  std::error_code ignored;
  const fs::path place = fs::weakly_canonical(fs::absolute(directory, ignored), ignored);
  if (std::ranges::find(place, fs::path(kFolder)) != place.end()) {
    throw RequestError(fmt::format("{}: {} is the name of a folder that saves make and remove",
                                   directory, kFolder));
  }
}

void check_set_place(const std::string& directory) {
  check_no_save_folder(directory);
  std::error_code ignored;
  std::vector<std::string> problems;
  const auto check = [&](const fs::path& path) {
    if (const std::string why = why_not_replaced(path); !why.empty()) {
      problems.push_back(why + ", but weights saved there need a file of this name; remove it");
    }
  };
  const fs::path in = directory;
  for (const char* name : {kConfig, kOwner, kWhole, kIndex}) check(in / name);
  for (const char* name : set_companions) check(in / name);
  for (const auto& entry : fs::directory_iterator(in, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model-") && name.ends_with(".safetensors")) check(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(in / kFolder, ignored)) {
    check(in / entry.path().filename());  // the set of an interrupted save is moved there first
  }
  const fs::file_status saving = fs::symlink_status(in / kFolder, ignored);
  if (fs::exists(saving) && !fs::is_directory(saving) && !fs::is_symlink(saving)) {
    problems.push_back((in / kFolder).string() + ": is not a folder that a save made; remove it");
  }
  if (fs::exists(fs::symlink_status(in / "trident" / "manifest.json", ignored))) {
    problems.push_back(directory +
                       ": is a run's checkpoint, which other weights would damage; "
                       "choose another directory");
  }
  if (!problems.empty()) throw RequestError(problems);
}

std::int64_t unfinished_bytes(const std::string& directory) {
  const fs::path from = fs::path(directory) / kFolder;
  std::int64_t bytes = 0;
  std::error_code ignored;
  if (fs::is_symlink(from, ignored) || there(from / kConfig)) return 0;
  for (const auto& file : fs::directory_iterator(from, ignored)) {
    struct stat status {};
    if (::lstat(file.path().c_str(), &status) == 0) bytes += status.st_blocks * 512;
  }
  return bytes;
}

std::vector<std::string> companions_that_stay(const std::string& directory,
                                              const std::set<std::string>& names) {
  const std::vector<std::string> going = own_tokenizer(directory);
  std::vector<std::string> staying;
  for (const char* name : set_companions) {
    if (name == std::string_view(kGenerationConfig) || names.contains(name)) continue;
    if (there(fs::path(directory) / name) && std::ranges::find(going, name) == going.end()) {
      staying.emplace_back(name);
    }
  }
  return staying;
}

std::string note_of_companions(const std::string& directory, const std::set<std::string>& names) {
  const auto staying = companions_that_stay(directory, names);
  if (staying.empty()) return "";
  return fmt::format(
      "{}: {} there stay{}: remove files that belong to another tokenizer than these weights'",
      directory, fmt::join(staying, ", "), staying.size() == 1 ? "s" : "");
}

namespace {

void write_owner(const std::string& directory, const std::string& run_id, bool with_companions) {
  auto weights = nlohmann::ordered_json::object(), companions = nlohmann::ordered_json::object();
  for (const auto& file : fs::directory_iterator(directory)) {
    const std::string name = file.path().filename();
    if (is_weights(name)) weights[name] = print_of(file.path());
    const bool companion = std::ranges::find(set_companions, name) != set_companions.end();
    if (companion && with_companions) companions[name] = print_of(file.path());
  }
  const nlohmann::ordered_json owner{
      {"run_id", run_id}, {"weights", weights}, {"companions", companions}};
  write_file_atomic((fs::path(directory) / kOwner).string(), json_text(owner, 2) + "\n");
}

}  // namespace

void sign_weights(const std::string& directory, const std::string& run_id) {
  write_owner(directory, run_id, false);
}

void NewWeights::sign(const std::string& run_id) const {
  write_owner(path_, run_id, true);
}

std::string run_of_weights(const std::string& directory) {
  const fs::path in = directory, from = unfinished_save(directory);
  const auto place = [&](const char* name) {
    return !from.empty() && there(from / name) ? from / name : in / name;
  };
  const bool moving = !from.empty() && weights_to_move(from);
  const nlohmann::json owner = owner_in(moving ? from / kOwner : place(kOwner));
  if (!owner.is_object()) return "";
  const auto id = owner.find("run_id"), weights = owner.find("weights");
  if (id == owner.end() || !id->is_string()) return "";
  if (weights == owner.end() || !weights->is_object()) return "";
  for (const auto& [name, print] : weights->items()) {
    if (!is_weights(name) || print != print_of(place(name.c_str()))) return "";
  }
  for (const char* name : {kWhole, kIndex}) {
    if (!moving && there(in / name) && !weights->contains(name)) return "";
  }
  return id->get<std::string>();
}

}  // namespace trident
