// Tokens of texts, kept on the disk so that a text is tokenized once: Megatron .bin/.idx pairs in a
// folder, with the borders of documents, found by the contents of the files and of the tokenizer.
// PREFIX.json beside a pair says of what it is; it comes last, and a pair without one, or of other
// contents than it says, is none. What a file holds is known as long as its inode and times are
// those of when all of it was read (files/*.json). Several processes, also of several hosts, may
// use the folder at once: one of them tokenizes, the others wait for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/tokenize.h"

namespace trident {

struct CachedTokens {
  std::string prefix;    // of the pair
  std::string contents;  // equal for equal tokens: a hash of what they were made of
  std::int64_t tokens = 0, documents = 0;
  TextMarks marks;

  std::int64_t text_bytes() const { return marks.list().back().bytes; }
};

class TokenCache {
 public:
  // `remembers`: keeps hashes of files that it has read, once the folder is there.
  TokenCache(std::string folder, bool remembers,
             std::shared_ptr<KnownHashes> hashes = std::make_shared<KnownHashes>())
      : folder_(std::move(folder)), remembers_(remembers), hashes_(std::move(hashes)) {}

  // Those of `files`, if they are there. Reads files whose hash isn't known, or that have changed.
  std::optional<CachedTokens> find(const std::vector<SourceFile>& files,
                                   const DocumentEncoder& encoder) const;
  // The same, made where they aren't there: by this process, or by another that is at it. `name`:
  // what the pair's name begins with. Error where a file changes meanwhile; others as tokenize().
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
