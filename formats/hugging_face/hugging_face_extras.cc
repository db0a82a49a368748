#include "formats/hugging_face/hugging_face_extras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/weights_folder.h"

namespace trident {
namespace {

constexpr auto kGeneration = "generation_config.json";
constexpr std::uint64_t kMaxGenerationConfig = 4 << 20;         // bytes
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // of a tokenizer's file

bool there(const std::string& path) {
  std::error_code unreadable;  // if set, opening the file reports the reason
  return std::filesystem::exists(path, unreadable) || unreadable;
}

void take_config(const std::string& text, const std::string& directory, const FamilyFormats& family,
                 bool conversion, HuggingFaceExtras& extras) {
  try {
    extras.config = family.kept_config(text, conversion);
  } catch (const RequestError& error) {
    throw error.at(directory + "/config.json: ");
  }
}

void take_generation(std::string text, const std::string& directory, HuggingFaceExtras& extras) {
  const std::string path = directory + "/" + kGeneration;
  if (!parse_json(text, path).is_object()) {
    throw RequestError(path + ": needs an object of keys");
  }
  extras.files[kGeneration] = std::move(text);
}

}  // namespace

void HuggingFaceExtras::set_end_of_text(std::int32_t id) {
  auto keys = ordered_json_or_null(config);
  if (keys.contains("eos_token_id") && !keys["eos_token_id"].is_null()) return;
  keys["eos_token_id"] = id;
  config = json_text(keys);
}

HuggingFaceExtras extras_in(const std::map<std::string, std::string>& files,
                            const std::string& path, const FamilyFormats& family) {
  HuggingFaceExtras extras;
  const auto config = files.find("config.json");
  if (config == files.end()) throw RequestError(path + "/config.json: there is no such file");
  take_config(config->second, path, family, false, extras);
  const auto generation = files.find(kGeneration);
  if (generation != files.end()) take_generation(generation->second, path, extras);
  return extras;
}

HuggingFaceExtras read_extras(const std::string& directory, const FamilyFormats& family,
                              bool conversion) {
  HuggingFaceExtras extras;
  take_config(read_model_config(directory), directory, family, conversion, extras);
  const std::string generation = directory + "/" + kGeneration;
  if (there(generation)) {
    take_generation(read_file(generation, kMaxGenerationConfig), directory, extras);
  }
  for (const char* name : set_companions) {
    const std::string path = directory + "/" + name;
    if (conversion && name != std::string_view(kGeneration) && there(path))
      extras.files[name] = read_file(path, kMostBytes);
  }
  return extras;
}

std::string notes_of(const std::string& directory, const FamilyFormats& family,
                     std::int64_t mtp_layers) {
  constexpr std::size_t kMost = 12;
  const std::string config = read_model_config(directory);
  std::vector<std::string> names, notes;
  for (const std::string& key : family.unread_keys(config)) names.push_back(printable(key, 60));
  if (!names.empty()) {
    const std::size_t more = names.size() - std::min(names.size(), kMost);
    names.resize(names.size() - more);
    notes.push_back(
        fmt::format("transformers doesn't know {}{}: ignored, and kept in saved directories",
                    fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  if (family.further_layers(config) > mtp_layers) {
    const auto layers =
        parse_json(family.model_config(config), directory).at("num_layers").get<std::int64_t>();
    const std::int64_t left =
        further_layers_in(SafetensorsSet(directory), family, layers) - mtp_layers;
    if (left > 0) {
      notes.push_back(fmt::format("layers that predict further tokens are left out ({})", left));
    }
  }
  if (notes.empty()) return "";
  return fmt::format("{}/config.json: {}", directory, fmt::join(notes, "; "));
}

std::string read_tokenizer(const std::string& path) {
  return read_file(path, kMostBytes);
}

std::string with_extras(const std::string& config, const HuggingFaceExtras& extras) {
  auto merged = ordered_json_or_null(config);
  const auto kept = ordered_json_or_null(extras.config);
  for (const auto& [key, value] : kept.items()) merged[key] = value;
  return json_text(merged, 2);
}

}  // namespace trident
