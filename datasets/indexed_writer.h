// Writes a Megatron .bin/.idx pair (indexed_source.h), document by document. Keeps 4 bytes in
// memory for each document. Not thread-safe. Both files are temporary until commit().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

class IndexedWriter {
 public:
  // Tokens must be below `vocab_size`. They take 16 bits each if vocab_size <= 2^16, else 32.
  IndexedWriter(const std::string& prefix, std::int64_t vocab_size);

  // Appends tokens to the current document. A document of more than 2^31 - 1 tokens becomes several
  // sequences.
  void append(std::span<const std::int32_t> tokens);
  // Ends the current document. Does nothing if the document has no token.
  void end_document();
  // Publishes both files, the .idx last. Call it once, after the last end_document().
  void commit();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const {
    return static_cast<std::int64_t>(lengths_.size() - later_.size());
  }

 private:
  void end_sequence();
  void flush();

  AtomicFile bin_, idx_;
  bool wide_;
  std::vector<std::byte> buffer_;      // tokens to write
  std::vector<std::int32_t> lengths_;  // tokens of each sequence
  std::vector<std::int64_t> later_;    // sequences that continue a document
  std::int64_t tokens_ = 0;
  std::int32_t sequence_ = 0;  // tokens of the current sequence
  bool continues_ = false;     // the current sequence isn't the document's first
};

}  // namespace trident
