// A source of training data: one flat stream of token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  // The largest of the first `most` tokens; -1 of text, whose tokens are below 256.
  virtual std::int64_t largest_token(std::int64_t most) const {
    static_cast<void>(most);
    return -1;
  }
};

// What a path means: a text file, read byte by byte (256 ids, no special token), or a Megatron
// .bin/.idx pair named by its common prefix. `byte_tokenizer` false says that the model's
// tokenizer is another one: a text file is then an error that names scripts/tokenize_corpus.py.
// Missing, empty, ambiguous or malformed files are RequestErrors.
std::unique_ptr<TokenSource> open_token_source(const std::string& path, std::int64_t vocab_size,
                                               bool byte_tokenizer = true);

// The files that such a path leads to.
std::vector<std::string> token_source_files(const std::string& path);

}  // namespace trident
