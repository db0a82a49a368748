#include "run/processes/agreement.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/files/content_hash.h"
#include "base/files/file.h"
#include "datasets/token_source.h"
#include "formats/hugging_face/safetensors.h"
#include "kernels/cpu_library.h"
#include "settings/values.h"

namespace trident {
namespace {

// Keys that rank 0 alone reads.
constexpr const char* kFree[] = {"/logging/dir", "/logging/overwrite", "/logging/log_interval",
                                 "/logging/tensorboard"};

// Two paths with the same identity lead to the same file of the same boot of one machine.
std::string identity_of(const std::string& path) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "unreadable";
  return fmt::format("{}:{}:{}:{}:{}.{:09}", boot, status.st_dev, status.st_ino, status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

std::string contents_text(const std::string& path) {
  try {
    return fmt::format("{} bytes (contents {:016x})", ReadFile(path).size(),
                       content_hash_of_file(path));
  } catch (const std::exception& error) {
    return std::string("an error: ") + error.what();
  }
}

// A hash of the program's file, and of the library's if the program links it dynamically.
std::string program_text() {
  std::uint64_t hash = content_hash_of_file("/proc/self/exe");
  Dl_info info{};
  std::error_code code;
  if (::dladdr(reinterpret_cast<void*>(&program_text), &info) != 0 && info.dli_fname != nullptr) {
    const std::filesystem::path library = info.dli_fname;
    if (std::filesystem::is_regular_file(library, code) &&
        !std::filesystem::equivalent(library, "/proc/self/exe", code)) {
      const std::uint64_t of_library = content_hash_of_file(library);
      hash = content_hash(std::as_bytes(std::span(&of_library, 1)), hash);
    }
  }
  return fmt::format("build {:016x}", hash);
}

// A file's name in the texts that ranks exchange, without spaces.
std::string key_of(const InputFile& file) {
  return fmt::format("{:016x}", content_hash(std::as_bytes(std::span(file.name))));
}

// A line with key, identity and reading rank for each file that not all ranks share.
std::string readers(const std::vector<std::string>& all) {
  std::map<std::string, std::map<std::string, std::size_t>> first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    for (std::string key, identity; lines >> key >> identity;) {
      first[key].try_emplace(identity, rank);
    }
  }
  std::string text;
  for (const auto& [key, ranks] : first) {
    if (ranks.size() == 1) continue;
    for (const auto& [identity, rank] : ranks) {
      text += fmt::format("{} {} {}\n", key, identity, rank);
    }
  }
  return text;
}

}  // namespace

std::vector<Fingerprint> config_fingerprints(const Config& config) {
  Config shown = config;
  const auto hide = [](std::string& path) {
    if (!path.empty()) path = "...";
  };
  for (DataSource& source : shown.data.train) hide(source.path);
  for (ValidationSet& set : shown.data.validation) {
    for (DataSource& source : set.sources) hide(source.path);
  }
  hide(shown.data.tokenizer.path);
  hide(shown.data.cache_path);
  hide(shown.checkpoint.local.dir);
  hide(shown.pipeline.schedule_file);
  hide(shown.checkpoint.load);
  hide(shown.checkpoint.save);
  hide(shown.runtime.machine);
  std::vector<Fingerprint> prints;
  for (auto& [path, value] : config_values(shown)) {
    if (std::find(std::begin(kFree), std::end(kFree), path) != std::end(kFree)) continue;
    prints.push_back(
        {"config: " + path, std::move(value), "give all ranks the same file and --set"});
  }
  return prints;
}

void require_same_config(const Config& config, Context& context, const ProcessGroup& world) {
  const std::vector<Fingerprint> keys = config_fingerprints(config);
  std::vector<std::int64_t> mine;
  for (const Fingerprint& key : keys) {
    mine.push_back(static_cast<std::int64_t>(content_hash(std::as_bytes(std::span(key.value)))));
  }
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor own = context.from_host<std::int64_t>({count}, mine, Category::communication);
  const Tensor all = context.empty({count * world.size()}, DType::i64, Category::communication);
  world.all_gather(context, own, all);
  const auto values = context.to_host<std::int64_t>(all);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t key = i % keys.size();
    if (values[i] == values[key]) continue;
    throw RequestError(fmt::format("{}: rank {} has another value than rank 0 (rank {} has {}); {}",
                                   keys[key].name, i / keys.size(), world.rank(), keys[key].value,
                                   keys[key].advice));
  }
}

std::vector<Fingerprint> machine_fingerprints(
    const Devices& devices, const std::vector<std::pair<std::string, std::string>>& environment) {
  std::vector<Fingerprint> prints{
      {"program", program_text(), "start the same build on all hosts"},
      {"device", devices.text(),
       "ranks whose kernels use other instructions give other last digits; ONEDNN_MAX_CPU_ISA "
       "(AVX2, AVX512_CORE, ...) sets what all can do"},
      {"matrix products", cpu_product_library(),
       "install the same oneDNN everywhere; ONEDNN_MAX_CPU_ISA sets what all processors can do"},
      {"C library", gnu_get_libc_version(), "its mathematical functions differ in last digits"}};
  for (const auto& [name, version] : devices.versions()) {
    prints.push_back({name, version, "install the same everywhere"});
  }
  for (const auto& [name, value] : environment) {
    prints.push_back({"environment: " + name, value, "set it alike for all ranks, or for none"});
  }
  return prints;
}

std::vector<InputFile> input_files(const DataConfig& data, const PipelineConfig& pipeline,
                                   const std::string& directory) {
  std::vector<InputFile> files;
  const auto add_source = [&](const std::string& key, const std::string& path) {
    if (is_tokenized(path, data.tokenizer.type == "byte")) return;  // contents() are compared
    for (const std::string& file : token_source_files(path)) {
      const std::string extension = file == path ? "" : file.substr(path.size());
      files.push_back({fmt::format("{}{}", key, extension), file});
    }
  };
  const auto add_sources = [&](const std::string& key, const std::vector<DataSource>& sources) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      add_source(fmt::format("file of {}/{}/path", key, i), sources[i].path);
    }
  };
  add_sources("/data/train", data.train);
  for (const ValidationSet& set : data.validation) {
    add_sources("/data/validation" + (set.name.empty() ? "" : "/" + set.name), set.sources);
  }
  if (!pipeline.schedule_file.empty()) {
    files.push_back({"file of /pipeline/schedule_file", pipeline.schedule_file});
  }
  if (!directory.empty()) {
    const SafetensorsSet weights(directory);
    std::set<std::string> paths{directory + "/config.json"};
    for (const SafetensorsEntry* entry : weights.tensors()) {
      paths.insert(weights.file_of(entry->name));
    }
    for (const std::string& path : paths) {
      files.push_back(
          {"file of /checkpoint/load, " + std::filesystem::path(path).filename().string(), path});
    }
  }
  return files;
}

std::string training_data_hash(const DataConfig& data, const Dataset& train) {
  constexpr std::uint64_t kSampled = std::uint64_t{64} << 20;  // bytes of each file
  std::uint64_t hash = 0;
  for (const DataPart& part : train.parts()) {
    const std::string& contents = part.source->contents();
    if (!contents.empty()) hash = content_hash(std::as_bytes(std::span(contents)), hash);
  }
  for (const InputFile& file : input_files(data, {}, "")) {
    if (!file.name.starts_with("file of /data/train/")) continue;
    const std::uint64_t own = content_hash_of_file(file.path, kSampled);
    hash = content_hash(std::as_bytes(std::span(&own, 1)), hash);
  }
  return fmt::format("{:016x}", hash);
}

std::vector<Fingerprint> file_fingerprints(const std::vector<InputFile>& files, int rank,
                                           const ExchangeBytes& exchange) {
  std::string own;
  std::vector<std::string> places;  // key and identity
  for (const InputFile& file : files) {
    places.push_back(key_of(file) + " " + identity_of(file.path));
    own += places.back() + "\n";
  }
  std::map<std::string, int> reader;  // the rank that reads a file, by place
  std::istringstream asked(exchange(own, readers));
  int who = 0;
  for (std::string key, identity; asked >> key >> identity >> who;) {
    reader[key + " " + identity] = who;
  }
  own.clear();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto found = reader.find(places[i]);
    if (found == reader.end() || found->second != rank) continue;
    own += places[i] + "\n" + contents_text(files[i].path) + "\n";
  }
  std::map<std::string, std::string> contents;  // by place
  if (!reader.empty()) {
    std::istringstream answer(exchange(own, [](const std::vector<std::string>& all) {
      std::string text;
      for (const std::string& one : all) text += one;
      return text;
    }));
    for (std::string place, text; std::getline(answer, place) && std::getline(answer, text);) {
      contents[place] = text;
    }
  }
  std::vector<Fingerprint> prints;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto found = contents.find(places[i]);
    prints.push_back({files[i].name, found == contents.end() ? "the same file" : found->second,
                      "give all ranks files of the same contents"});
  }
  return prints;
}

}  // namespace trident
