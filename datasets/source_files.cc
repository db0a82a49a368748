#include "datasets/source_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string without(std::string path, std::string_view ending) {
  path.resize(path.size() - ending.size());
  return path;
}

// Returns the prefix of a pair if `path` is one half and the other half exists; else "".
std::string prefix_of_half(const std::string& path) {
  for (const auto& [own, other] : {std::pair(".bin", ".idx"), std::pair(".idx", ".bin")}) {
    if (path.ends_with(own) && exists(without(path, own) + other)) return without(path, own);
  }
  return "";
}

bool has_ending(const std::string& name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

// Whether a file in a folder is data. A file that the config names itself is text unless its name
// says otherwise. In a folder only the names below count; a .json file there may be anything.
bool is_known(const SourceFile& file) {
  std::string name = file.path;
  if (file.compression == Compression::gzip) name = without(name, ".gz");
  if (file.compression == Compression::zstd) name = without(name, ".zst");
  return has_ending(name, {".txt", ".jsonl", ".ndjson", ".parquet"});
}

// Refuses files whose bytes could be tokenized but aren't text.
void require_readable(const SourceFile& file) {
  if (file.format == DocumentFormat::parquet && file.compression != Compression::none) {
    throw RequestError(file.path +
                       ": .parquet files are compressed internally; decompress the outer file");
  }
  const bool archive = has_ending(file.path, {".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip", ".7z",
                                              ".bz2", ".xz", ".lz4", ".rar"});
  if (archive) {
    throw RequestError(file.path +
                       ": is an archive, or has a compression that isn't supported; name "
                       "its files, uncompressed or as .gz or .zst");
  }
}

class Finder {
 public:
  // Adds a file. `by_name`: a pattern named the file itself; else it was found in a folder.
  void add(const std::string& path, bool by_name) {
    const std::string prefix = prefix_of_half(path);
    if (!prefix.empty()) {
      found_.pairs.push_back(prefix);
      return;
    }
    const SourceFile file = source_file(path);
    if (by_name) require_readable(file);
    if (by_name || is_known(file)) {
      found_.files.push_back(file);
    } else {
      found_.left.push_back(path);
    }
  }

  // Adds a folder, or a file that is named itself.
  void add_any(const std::string& path) {
    try {
      if (fs::is_directory(path)) {
        add_folder(path);
      } else if (fs::is_regular_file(path)) {
        add(path, true);
      }
    } catch (const fs::filesystem_error& error) {
      throw RequestError(
          fmt::format("{}: can't be read: {}", error.path1().string(), error.code().message()));
    }
  }

  SourceFiles take(const std::string& path) {
    std::ranges::sort(found_.pairs);
    found_.pairs.erase(std::ranges::unique(found_.pairs).begin(), found_.pairs.end());
    std::ranges::sort(found_.files, {}, &SourceFile::path);
    std::ranges::sort(found_.left);
    if (found_.pairs.empty() && found_.files.empty()) {
      throw RequestError(fmt::format(
          "{}: holds no .txt, .jsonl, .parquet file and no .bin/.idx pair{}", path,
          found_.left.empty() ? "" : fmt::format(", but {} other files", found_.left.size())));
    }
    if (!found_.pairs.empty() && !found_.files.empty()) {
      throw RequestError(
          fmt::format("{}: holds both texts ({}) and .bin/.idx pairs ({}): name them separately",
                      path, found_.files[0].path, found_.pairs[0]));
    }
    return std::move(found_);
  }

 private:
  void add_folder(const std::string& path) {
    if (exists(path + "/CACHEDIR.TAG")) return;  // a cache, such as the token cache
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(path)) entries.push_back(entry.path());
    for (const fs::path& entry : entries) {
      if (entry.filename().string().starts_with('.')) continue;
      if (fs::is_directory(entry)) {
        add_folder(entry.string());
      } else if (fs::is_regular_file(entry)) {
        add(entry.string(), false);
      }
    }
  }

  SourceFiles found_;
};

SourceFiles matches_of(const std::string& pattern) {
  glob_t found = {};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, ::globfree);
  if (code != 0) throw RequestError(fmt::format("{}: no file matches", pattern));
  Finder finder;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) finder.add_any(found.gl_pathv[i]);
  return finder.take(pattern);
}

}  // namespace

SourceFile source_file(const std::string& path) {
  SourceFile file{.path = path};
  std::string name = path;
  if (name.ends_with(".gz")) {
    file.compression = Compression::gzip;
    name = without(name, ".gz");
  } else if (name.ends_with(".zst")) {
    file.compression = Compression::zstd;
    name = without(name, ".zst");
  }
  if (has_ending(name, {".jsonl", ".ndjson", ".json"})) file.format = DocumentFormat::json_lines;
  if (name.ends_with(".parquet")) file.format = DocumentFormat::parquet;
  return file;
}

SourceFiles find_source_files(const std::string& path) {
  if (path.empty()) throw RequestError("an empty path names no data");
  const bool bin = exists(path + ".bin");
  const bool idx = exists(path + ".idx");
  std::error_code code;
  const bool file = fs::is_regular_file(path, code);
  const bool folder = fs::is_directory(path, code);
  if ((file || folder) && bin && idx) {
    throw RequestError(
        fmt::format("{0}: is a {1}, and {0}.bin and {0}.idx exist too: rename one of the two", path,
                    file ? "file" : "folder"));
  }
  SourceFiles found;
  if (bin && idx) {
    found.pairs.push_back(path);
    return found;
  }
  if (file) {
    const std::string prefix = prefix_of_half(path);
    if (!prefix.empty()) {
      throw RequestError(
          fmt::format("{}: name a .bin/.idx pair by its common prefix, {}", path, prefix));
    }
    found.files.push_back(source_file(path));
    require_readable(found.files.back());
    return found;
  }
  if (folder) {
    Finder finder;
    finder.add_any(path);
    return finder.take(path);
  }
  if (bin != idx) {
    throw RequestError(fmt::format("{0}: {0}.{1} exists, but {0}.{2} is missing", path,
                                   bin ? "bin" : "idx", bin ? "idx" : "bin"));
  }
  if (exists(path)) throw RequestError(fmt::format("{}: not a regular file", path));
  if (path.find_first_of("*?[") != std::string::npos) return matches_of(path);
  throw RequestError(
      fmt::format("{0}: no such file or folder, and no pair {0}.bin, {0}.idx", path));
}

}  // namespace trident
