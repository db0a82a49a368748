// A cache of tokens on disk, so that a text is tokenized once. It holds Megatron .bin/.idx pairs
// with document boundaries in a folder. The key of a pair is the contents of its files and
// tokenizer.
//
// PREFIX.json next to a pair describes it and is written last. The cache ignores a pair without
// this file, and a pair whose contents differ from the description. The hash of a file's contents
// is stored in files/*.json and is valid while the file's path, inode, size and times are
// unchanged.
//
// Several processes, on several hosts too, may use the folder at once: one of them tokenizes, and
// the others wait for it, without a time-out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/tokenize.h"

namespace trident {

struct CachedTokens {
  std::string prefix;    // the prefix of the pair
  std::string contents;  // the hash of the key: equal for equal tokens
  std::int64_t tokens = 0, documents = 0;
  TextMarks marks;

  std::int64_t text_bytes() const { return marks.list().back().bytes; }
};

class TokenCache {
 public:
  // `remembers`: stores the hashes of files that it has read, if the folder exists.
  TokenCache(std::string folder, bool remembers,
             std::shared_ptr<KnownHashes> hashes = std::make_shared<KnownHashes>())
      : folder_(std::move(folder)), remembers_(remembers), hashes_(std::move(hashes)) {}

  // Returns the tokens of `files` if the cache has them. Reads a file only if its hash isn't known
  // or the file has changed.
  std::optional<CachedTokens> find(const std::vector<SourceFile>& files,
                                   const DocumentEncoder& encoder) const;
  // As find(), but tokenizes the files if the cache doesn't have them, or waits for a process that
  // already does so. `name`: the beginning of the pair's file name. Error if a file changes
  // meanwhile; RequestError if the files hold no text; other errors as tokenize().
  CachedTokens make(const std::string& name, const std::vector<SourceFile>& files,
                    const DocumentEncoder& encoder, const TokenizingOptions& options) const;

 private:
  std::string hash_of(const std::string& path) const;
  std::string key_of(const std::vector<SourceFile>& files, const DocumentEncoder& encoder) const;
  std::optional<CachedTokens> find_by_key(const std::string& key) const;

  std::string folder_;
  bool remembers_;
  std::shared_ptr<KnownHashes> hashes_;
};

}  // namespace trident
