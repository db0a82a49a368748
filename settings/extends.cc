// "extends": a config that is merged onto other configs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/printable.h"
#include "settings/fields.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxConfig = 16 << 20;  // bytes
constexpr std::size_t kMostFiles = 32;          // limit of nested files and of all files

// The files being read, outermost first, and the number of files read so far.
struct Reading {
  std::vector<fs::path> open;
  std::size_t files = 0;
};

std::string text_of(const std::string& path) {
  std::string text = read_stream(path, kMaxConfig);
  if (text.empty()) throw RequestError(path + ": is empty");
  return text;
}

// The folder of a file; empty for a pipe and for a stream of this process (/dev/fd, /proc).
fs::path folder_of(const std::string& path) {
  std::error_code none;
  const fs::path folder = fs::path(path).parent_path();
  const bool stream = folder == "/dev" || folder.string().starts_with("/dev/fd") ||
                      folder.string().starts_with("/proc");
  return fs::is_regular_file(path, none) && !stream ? folder : fs::path();
}

std::vector<std::string> names_in(const json& extends, const std::string& path) {
  const json list = extends.is_array() ? extends : json::array({extends});
  std::vector<std::string> names;
  for (const json& name : list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
        name.get_ref<const std::string&>().find('\0') != std::string::npos) {
      throw RequestError(fmt::format("{}: /extends: {} is not a config's path, nor a list of such",
                                     path, printable(json_text(extends), 60)));
    }
    names.push_back(name);
  }
  return names;
}

bool has_bases(const std::string& text) {
  try {
    const json own = parse_json(text, "", JsonComments::allowed);
    return own.is_object() && own.contains("extends");
  } catch (const RequestError&) {
    return false;
  }
}

json with_bases(const std::string& path, const std::string& text, Reading& reading) {
  std::error_code none;
  const fs::path place = fs::weakly_canonical(path, none);
  if (std::ranges::find(reading.open, place) != reading.open.end()) {
    throw RequestError(path + ": /extends: leads back to this file");
  }
  if (++reading.files > kMostFiles) {
    throw RequestError(fmt::format("{}: /extends: more than {} files in all", path, kMostFiles));
  }
  json own = parse_json(text, path, JsonComments::allowed);
  if (!own.is_object()) throw RequestError(path + ": the document must be an object of sections");
  if (!own.contains("extends")) return own;
  reading.open.push_back(place);
  json merged = json::object();
  for (const std::string& name : names_in(own["extends"], path)) {
    const std::string base = (folder_of(path) / name).string();
    std::string found;
    try {
      found = text_of(base);
    } catch (const RequestError& error) {
      throw RequestError(fmt::format("{}: /extends: {}", path, printable(error.what())));
    }
    merged.merge_patch(config_detail::as_written(with_bases(base, found, reading)));
  }
  reading.open.pop_back();
  own.erase("extends");
  merged.merge_patch(own);  // RFC 7386: objects key by key, null takes a key out
  return merged;
}

}  // namespace

std::string read_config(const std::string& path) {
  try {
    std::string text = text_of(path);
    // Without bases the text stays as it is, so that problems are reported at their lines.
    if (!has_bases(text)) return text;
    Reading reading;
    return json_text(with_bases(path, text, reading), 2) + "\n";
  } catch (const RequestError& error) {
    throw RequestError(fmt::format("config: {}", error.what()));
  }
}

}  // namespace trident
