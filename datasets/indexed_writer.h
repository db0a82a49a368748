// Writes a Megatron .bin/.idx pair (indexed_source.h), document by document. Holds 4 bytes
// for each document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/file.h"

namespace trident {

class IndexedWriter {
 public:
  // Tokens below `vocab_size`, of 16 bits where all such fit, else 32.
  IndexedWriter(const std::string& prefix, std::int64_t vocab_size);

  // More of the document that is being written. A document of more than 2^31 - 1 tokens has
  // several sequences.
  void append(std::span<const std::int32_t> tokens);
  // Nothing where it has no token.
  void end_document();
  // Both files appear, the .idx last. Once.
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
  std::vector<std::byte> buffer_;      // of tokens
  std::vector<std::int32_t> lengths_;  // of sequences
  std::vector<std::int64_t> later_;    // sequences that go on with the document before them
  std::int64_t tokens_ = 0;
  std::int32_t sequence_ = 0;  // tokens of the one that is being written
  bool goes_on_ = false;       // it is not the document's first
};

}  // namespace trident
