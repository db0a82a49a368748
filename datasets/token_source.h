// A source of training or evaluation data: one flat stream of token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/document_encoder.h"
#include "datasets/tokenize.h"

namespace trident {

// Read-only after opening and thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // The path that error messages name.
  virtual const std::string& path() const = 0;
  virtual std::int64_t size() const = 0;  // tokens
  // Reads tokens [begin, begin + out.size()); Error if the stream doesn't have them all. A token
  // outside [0, vocab_size) is a RequestError that names the file, the position and the token.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  // Whether the source knows where documents begin: it has several.
  virtual bool has_documents() const { return false; }
  // The positions within (begin, end] at which a document begins or the last one ends, ascending.
  // 0 <= begin <= end <= size().
  virtual std::vector<std::int64_t> document_edges(std::int64_t begin, std::int64_t end) const {
    static_cast<void>(begin), static_cast<void>(end);
    return {};
  }
  // For tokens that were made from a text: a hash of the text, the tokenizer and its options, equal
  // on all hosts. "" for other tokens; ranks then compare the files (token_source_files()).
  virtual const std::string& contents() const {
    static const std::string none;
    return none;
  }
  // For tokens that were made from a text: the positions of its bytes. nullptr for other tokens.
  virtual const TextMarks* text_marks() const { return nullptr; }
  // The largest of the first `most` tokens; -1 for text, whose tokens are below 256.
  virtual std::int64_t largest_token(std::int64_t most) const {
    static_cast<void>(most);
    return -1;
  }
};

// How open_token_source() gets the tokens of texts.
struct TextAccess {
  // Returns the tokenizer; called only if a path leads to texts. May throw RequestError.
  std::function<DocumentEncoder()> encoder;
  std::string cache;       // the folder of the token cache
  bool writes = false;     // tokenizes texts that aren't in the cache
  bool remembers = false;  // stores hashes of files in the cache, if its folder exists
  TokenizingOptions tokenizing = {};
  // The hashes of files that this process has read; copies of a TextAccess share them.
  std::shared_ptr<KnownHashes> hashes = std::make_shared<KnownHashes>();
  // Receives lines of text for the user: files left out, tokens made.
  std::function<void(const std::string&)> report = {};
};

// Opens a path (source_files.h). The path leads to .bin/.idx pairs, which are concatenated in the
// order of their names, or to texts. A single uncompressed text file under the byte tokenizer is
// read directly; other texts are tokenized once, into the cache. Returns nullptr if the tokens of
// texts aren't in the cache and `access.writes` is false. RequestError for missing, empty,
// ambiguous or malformed files, and if the tokenizer has more than `vocab_size` ids.
std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size,
                                               const TextAccess& access);
// The same with the byte tokenizer and no cache: opens pairs and single uncompressed text files.
// RequestError for other texts.
std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size);

// Whether a path leads to texts whose tokens come from the cache.
bool is_tokenized(const std::string& path, bool byte_tokenizer);
// The files that a path leads to.
std::vector<std::string> token_source_files(const std::string& path);

}  // namespace trident
