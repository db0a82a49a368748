// A source of training data: one flat stream of token ids.
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

// Read-only after opening; every method may be called from several threads at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // The file that errors name.
  virtual const std::string& path() const = 0;
  virtual std::int64_t size() const = 0;  // tokens
  // Tokens [begin, begin + out.size()), which must lie within the stream. A token that is not in
  // [0, vocab_size) is a RequestError that names the file, the position and the token.
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  // Of tokens that were made of a text: a hash of what they were made of, which is equal on other
  // hosts, too. "": the files themselves are compared (token_source_files()).
  virtual const std::string& contents() const {
    static const std::string none;
    return none;
  }
  // Of such tokens, where their text's bytes lie; nullptr of others.
  virtual const TextMarks* text_marks() const { return nullptr; }
  // The largest of the first `most` tokens; -1 of text, whose tokens are below 256.
  virtual std::int64_t largest_token(std::int64_t most) const {
    static_cast<void>(most);
    return -1;
  }
};

// Where texts' tokens come from.
struct TextAccess {
  // Reads the tokenizer when a text asks for it first. RequestError.
  std::function<DocumentEncoder()> encoder;
  std::string cache;       // the folder of their tokens
  bool writes = false;     // tokenizes what isn't there; else such a source is left out
  bool remembers = false;  // what files hold, in the cache, if it is there
  TokenizingOptions tokenizing = {};
  // What copies of this know of files.
  std::shared_ptr<KnownHashes> hashes = std::make_shared<KnownHashes>();
  // A line for people.
  std::function<void(const std::string&)> tell = {};
};

// What a path means (source_files.h): tokens in .bin/.idx pairs, one after the other in the order
// of their names, or texts. A single text file under the byte tokenizer is read as it is; other
// texts are tokenized, once. nullptr where that hasn't been done and `access` doesn't do it.
// Missing, empty, ambiguous or malformed files are RequestErrors.
std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size,
                                               const TextAccess& access);
// Under the byte tokenizer, without any cache: pairs and single text files.
std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size);

// Whether such a path leads to texts whose tokens come from a cache.
bool is_tokenized(const std::string& path, bool byte_tokenizer);
// The files that it leads to.
std::vector<std::string> token_source_files(const std::string& path);

}  // namespace trident
