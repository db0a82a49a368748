#include "datasets/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "datasets/indexed_source.h"
#include "datasets/source_files.h"
#include "datasets/text_source.h"
#include "datasets/token_cache.h"

namespace trident {
namespace {

// Several sources, concatenated.
class ConcatenatedSource : public TokenSource {
 public:
  ConcatenatedSource(std::string path, std::vector<std::unique_ptr<TokenSource>> sources)
      : path_(std::move(path)), sources_(std::move(sources)) {
    for (const auto& source : sources_) {
      begins_.push_back(size_);
      size_ += source->size();
    }
  }

  const std::string& path() const override { return path_; }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    auto at = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
    for (--at; !out.empty(); ++at) {
      const std::int64_t from = begin - begins_[at];
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(
          static_cast<std::int64_t>(out.size()), sources_[at]->size() - from));
      sources_[at]->read(from, out.first(count));
      out = out.subspan(count);
      begin += static_cast<std::int64_t>(count);
    }
  }
  bool has_documents() const override { return true; }
  std::vector<std::int64_t> document_edges(std::int64_t begin, std::int64_t end) const override {
    std::vector<std::int64_t> edges;
    auto at = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin());
    for (--at; at < sources_.size() && begins_[at] < end; ++at) {
      const TokenSource& source = *sources_[at];
      const std::int64_t first = begins_[at], last = first + source.size();
      const std::int64_t from = std::max(begin, first), to = std::min(end, last);
      for (const std::int64_t edge : source.document_edges(from - first, to - first)) {
        edges.push_back(first + edge);
      }
      if (to == last && from < last && (edges.empty() || edges.back() != last)) {
        edges.push_back(last);
      }
    }
    return edges;
  }
  std::int64_t largest_token(std::int64_t most) const override {
    std::int64_t largest = -1;
    for (const auto& source : sources_) {
      largest = std::max(largest, source->largest_token(most));
    }
    return largest;
  }

 private:
  std::string path_;
  std::vector<std::unique_ptr<TokenSource>> sources_;
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
};

std::unique_ptr<TokenSource> open_pairs(const std::string& path,
                                        const std::vector<std::string>& prefixes,
                                        std::int64_t vocab_size) {
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const std::string& prefix : prefixes) {
    sources.push_back(std::make_unique<IndexedSource>(prefix, vocab_size));
  }
  if (sources.size() == 1) return std::move(sources[0]);
  return std::make_unique<ConcatenatedSource>(path, std::move(sources));
}

bool is_plain(const SourceFiles& found) {
  return found.files.size() == 1 && found.files[0].format == DocumentFormat::text &&
         found.files[0].compression == Compression::none;
}

// The beginning of a cached pair's name, made from the path of the text.
std::string name_of(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty()) name = std::filesystem::path(path).parent_path().filename().string();
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return name.substr(0, 40);
}

std::unique_ptr<TokenSource> open_texts(const std::string& path, const SourceFiles& found,
                                        std::int64_t vocab_size, const TextAccess& access) {
  const DocumentEncoder encoder = access.encoder();
  if (!encoder.tokenizer && is_plain(found)) {
    return std::make_unique<TextSource>(found.files[0].path, vocab_size);
  }
  if (encoder.vocab_size() > vocab_size) {
    throw RequestError(fmt::format("{}: the tokenizer has {} ids, model.vocab_size is {}; use {}",
                                   path, encoder.vocab_size(), vocab_size, encoder.vocab_size()));
  }
  const TokenCache cache(access.cache, access.writes || access.remembers, access.hashes);
  std::optional<CachedTokens> tokens = cache.find(found.files, encoder);
  if (!tokens && !access.writes) return nullptr;
  if (!tokens) {
    if (!found.left.empty() && access.report) {
      access.report(fmt::format(
          "{}: {} of its files are texts; left out: {}{}", path, found.files.size(), found.left[0],
          found.left.size() > 1 ? fmt::format(" and {} more", found.left.size() - 1) : ""));
    }
    try {
      tokens = cache.make(name_of(path), found.files, encoder, access.tokenizing);
    } catch (const RequestError& error) {
      const bool placed = std::ranges::any_of(found.files, [&](const SourceFile& file) {
        return std::string_view(error.what()).starts_with(file.path);
      });
      throw placed ? error : error.at(path + ": ");
    }
    if (access.report) {
      access.report(fmt::format(
          "{}: {} of {}, {:.2f} bytes each, kept as {}.bin", path, counted(tokens->tokens, "token"),
          counted(tokens->documents, "document"),
          static_cast<double>(tokens->text_bytes()) / static_cast<double>(tokens->tokens),
          tokens->prefix));
    }
  }
  return std::make_unique<IndexedSource>(
      tokens->prefix, vocab_size,
      TextOrigin{.path = path, .contents = tokens->contents, .marks = std::move(tokens->marks)});
}

}  // namespace

std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size,
                                               const TextAccess& access) {
  const SourceFiles found = find_source_files(path);
  return found.pairs.empty() ? open_texts(path, found, vocab_size, access)
                             : open_pairs(path, found.pairs, vocab_size);
}

std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size) {
  const SourceFiles found = find_source_files(path);
  if (!found.pairs.empty()) return open_pairs(path, found.pairs, vocab_size);
  if (!is_plain(found)) {
    throw RequestError(fmt::format("{}: these texts have to be tokenized first", path));
  }
  return std::make_unique<TextSource>(found.files[0].path, vocab_size);
}

bool is_tokenized(const std::string& path, bool byte_tokenizer) {
  const SourceFiles found = find_source_files(path);
  return found.pairs.empty() && !(byte_tokenizer && is_plain(found));
}

std::vector<std::string> token_source_files(const std::string& path) {
  const SourceFiles found = find_source_files(path);
  std::vector<std::string> files;
  for (const std::string& prefix : found.pairs) {
    files.push_back(prefix + ".bin");
    files.push_back(prefix + ".idx");
  }
  for (const SourceFile& file : found.files) files.push_back(file.path);
  return files;
}

}  // namespace trident
