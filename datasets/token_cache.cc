#include "datasets/token_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files/content_hash.h"
#include "base/files/file.h"
#include "base/files/json.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The version of the tokenizing code. Tokens of another version are made again.
constexpr int kVersion = 2;

// The state of a file. If it is unchanged, the contents are too; this holds on all hosts that see
// the file.
json state_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw_file_error(path, "stat", errno);
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {{"path", path},
          {"inode", status.st_ino},
          {"bytes", status.st_size},
          {"modified", nanoseconds(status.st_mtim)},
          {"changed", nanoseconds(status.st_ctim)}};
}

std::string hexadecimal(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

// Returns null if the file can't be read (it may be another user's) or isn't JSON.
json json_if_readable(const std::string& path) {
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) return nullptr;
  try {
    return json_or_null(read_file(path));
  } catch (const Error&) {
    return nullptr;
  }
}

// Removes the temporary files of a process that ended while it wrote. They exist only on file
// systems where a temporary file needs a name.
void remove_temporaries(const std::string& folder, const std::string& hash) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find("-" + hash + ".") == std::string::npos) continue;
    if (name.find(".tmp-") != std::string::npos) fs::remove(entry.path(), ignored);
  }
}

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

// The marks as a flat list of numbers. marks_in() gives only the end for older manifests, which
// have no marks.
json json_of(const TextMarks& marks) {
  json list = json::array();
  for (const TextMark& mark : marks.list()) {
    list.push_back(mark.tokens);
    list.push_back(mark.bytes);
  }
  return list;
}

TextMarks marks_in(const json& manifest) {
  const auto numbers = manifest.value("text_marks", std::vector<std::int64_t>());
  std::vector<TextMark> list(numbers.size() / 2);
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = {numbers[2 * i], numbers[2 * i + 1]};
  return {
      std::move(list),
      {manifest.at("tokens").get<std::int64_t>(), manifest.at("text_bytes").get<std::int64_t>()}};
}

const char* name_of(DocumentFormat format) {
  return format == DocumentFormat::text      ? "text"
         : format == DocumentFormat::parquet ? "parquet"
                                             : "json lines";
}

// A lock that one process holds at a time, for one key. It locks a byte of a common file with
// fcntl, which NFS supports too.
class KeyLock {
 public:
  KeyLock(const std::string& folder, const std::string& key)
      : file_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_.get() < 0) throw_file_error(folder + "/lock", "open", errno);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(std::stoull(key, nullptr, 16) >> 2);
    lock.l_len = 1;
    while (::fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
        throw_file_error(folder + "/lock", "locking", errno);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

 private:
  FileDescriptor file_;
};

}  // namespace

std::string TokenCache::hash_of(const std::string& file) const {
  const std::string path = absolute(file);
  const std::string known =
      fmt::format("{}/files/{}.json", folder_, hexadecimal(content_hash(path)));
  const json now = state_of(path);
  json kept = json_if_readable(known);
  if (kept.is_object() && kept.contains("hash") && kept["hash"].is_string()) {
    const auto hash = kept["hash"].get<std::string>();
    kept.erase("hash");
    if (kept == now) return hash;
  }
  std::string& hash = (*hashes_)[json_text(now)];
  if (hash.empty()) {
    hash = hexadecimal(content_hash_of_file(path, std::numeric_limits<std::uint64_t>::max()));
    if (state_of(path) != now) throw Error(fmt::format("{}: changed while it was read", file));
  }
  // A file that changed a moment ago may change again with the same time, so don't store its hash.
  // Nor does this create the cache folder.
  const auto age = std::chrono::system_clock::now().time_since_epoch() -
                   std::chrono::nanoseconds(now["changed"].get<std::int64_t>());
  std::error_code missing;
  if (!remembers_ || age < std::chrono::seconds(3) || !fs::is_directory(folder_, missing)) {
    return hash;
  }
  try {
    fs::create_directories(folder_ + "/files");
    json keep = now;
    keep["hash"] = hash;
    write_file_atomic(known, json_text(keep));
  } catch (const std::exception&) {
    // The file is then read again next time.
  }
  return hash;
}

std::string TokenCache::key_of(const std::vector<SourceFile>& files,
                               const DocumentEncoder& encoder) const {
  json key = {{"version", kVersion},
              {"tokenizer", encoder.tokenizer ? hexadecimal(content_hash(encoder.tokenizer_text))
                                              : std::string("bytes")},
              {"end_of_document", nullptr},
              {"errors", encoder.replace_errors ? "replace" : "strict"},
              {"json_key", nullptr},
              {"files", json::array()}};
  if (encoder.end_of_document) key["end_of_document"] = *encoder.end_of_document;
  for (const SourceFile& file : files) {
    if (file.format != DocumentFormat::text) key["json_key"] = encoder.json_key;
    key["files"].push_back({{"hash", hash_of(file.path)},
                            {"bytes", fs::file_size(file.path)},
                            {"format", name_of(file.format)},
                            {"compression", static_cast<int>(file.compression)}});
  }
  return json_text(key);
}

std::optional<CachedTokens> TokenCache::find_by_key(const std::string& key) const {
  const std::string hash = hexadecimal(content_hash(key));
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    const std::string path = entry.path().string();
    if (!path.ends_with("-" + hash + ".json")) continue;
    const std::string prefix = path.substr(0, path.size() - 5);
    try {
      const json manifest = parse_json(read_file(path, std::uint64_t{1} << 30), path);
      if (manifest.at("made_of") != json_or_null(key) ||
          manifest.at("bin") != hash_of(prefix + ".bin") ||
          manifest.at("idx") != hash_of(prefix + ".idx")) {
        continue;
      }
      return CachedTokens{.prefix = prefix,
                          .contents = hash,
                          .tokens = manifest.at("tokens").get<std::int64_t>(),
                          .documents = manifest.at("documents").get<std::int64_t>(),
                          .marks = marks_in(manifest)};
    } catch (const std::exception&) {
      // The pair is incomplete or damaged, so the cache doesn't have it.
    }
  }
  return std::nullopt;
}

std::optional<CachedTokens> TokenCache::find(const std::vector<SourceFile>& files,
                                             const DocumentEncoder& encoder) const {
  return find_by_key(key_of(files, encoder));
}

CachedTokens TokenCache::make(const std::string& name, const std::vector<SourceFile>& files,
                              const DocumentEncoder& encoder,
                              const TokenizingOptions& options) const {
  std::vector<json> before;
  for (const SourceFile& file : files) before.push_back(state_of(absolute(file.path)));
  const std::string key = key_of(files, encoder);
  if (auto found = find_by_key(key)) return std::move(*found);
  require_output_directory(folder_);
  // Searches for data and backup programs skip a folder with this tag (bford.info/cachedir).
  write_file_atomic(folder_ + "/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
  const std::string hash = hexadecimal(content_hash(key));
  const KeyLock lock(folder_, hash);
  if (auto found = find_by_key(key)) return std::move(*found);
  const std::string prefix = fmt::format("{}/{}-{}", folder_, name, hash);
  fs::remove(prefix + ".json");
  remove_temporaries(folder_, hash);
  IndexedWriter writer(prefix, encoder.vocab_size());
  TextMarks marks = tokenize(files, encoder, writer, options);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (state_of(absolute(files[i].path)) != before[i]) {
      throw Error(fmt::format("{}: changed while it was tokenized", files[i].path));
    }
  }
  if (writer.tokens() == 0) throw RequestError("holds no text, so no token");
  writer.commit();
  const json manifest = {
      {"made_of", json_or_null(key)},    {"tokens", writer.tokens()},
      {"documents", writer.documents()}, {"text_bytes", marks.list().back().bytes},
      {"text_marks", json_of(marks)},    {"bin", hash_of(prefix + ".bin")},
      {"idx", hash_of(prefix + ".idx")}};
  write_file_atomic(prefix + ".json", json_text(manifest) + "\n");
  return {.prefix = prefix,
          .contents = hash,
          .tokens = writer.tokens(),
          .documents = writer.documents(),
          .marks = std::move(marks)};
}

}  // namespace trident
