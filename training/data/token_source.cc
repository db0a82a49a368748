#include "training/data/token_source.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "training/data/indexed_source.h"
#include "training/data/text_source.h"

namespace trident {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size,
                                               bool byte_tokenizer) {
  if (path.empty()) throw RequestError("an empty path names no data");
  const bool bin = exists(path + ".bin");
  const bool idx = exists(path + ".idx");
  std::error_code code;
  const bool file = std::filesystem::is_regular_file(path, code);
  if (file && bin && idx) {
    throw RequestError(fmt::format(
        "{0}: is a file, and {0}.bin and {0}.idx exist too: rename one of the two", path));
  }
  if (bin && idx) return std::make_unique<IndexedSource>(path, vocab_size);
  if (file) {
    const auto extension = std::filesystem::path(path).extension();
    const std::string stem = path.substr(0, path.size() - extension.string().size());
    if ((extension == ".bin" || extension == ".idx") && exists(stem + ".bin") &&
        exists(stem + ".idx")) {
      throw RequestError(
          fmt::format("{}: name a .bin/.idx pair by its common prefix, {}", path, stem));
    }
    if (!byte_tokenizer) {
      throw RequestError(fmt::format(
          "{}: a text file needs the byte tokenizer; for another one turn it into a .bin/.idx "
          "pair with scripts/tokenize_corpus.py first",
          path));
    }
    return std::make_unique<TextSource>(path, vocab_size);
  }
  if (bin != idx) {
    throw RequestError(fmt::format("{0}: {0}.{1} exists, but {0}.{2} is missing", path,
                                   bin ? "bin" : "idx", bin ? "idx" : "bin"));
  }
  if (exists(path)) throw RequestError(fmt::format("{}: not a regular file", path));
  throw RequestError(fmt::format("{0}: no such file, and no pair {0}.bin, {0}.idx", path));
}

std::vector<std::string> token_source_files(const std::string& path) {
  if (exists(path + ".bin")) return {path + ".bin", path + ".idx"};
  return {path};
}

}  // namespace trident
