// Megatron's indexed dataset, PREFIX.bin and PREFIX.idx. The .idx is little-endian and unpadded:
// "MMIDIDX\0\0", u64 version 1, u8 dtype, u64 sequences S, u64 documents + 1 D, S i32 lengths, S
// i64 byte pointers, D i64 document indices. The .bin holds only the tokens. The source reads them
// when they are needed. Megatron-LM's tools and scripts/tokenize_corpus.py write these files.
#pragma once

#include <cstddef>
#include <optional>

#include "base/files/file.h"
#include "datasets/token_source.h"

namespace trident {

// The origin of tokens that a cache holds.
struct TextOrigin {
  std::string path;      // the path of the text
  std::string contents;  // CachedTokens::contents
  TextMarks marks;
};

class IndexedSource : public TokenSource {
 public:
  // Opens both files and checks them against each other: magic, version, an integer dtype, the
  // exact size of the .idx, lengths >= 0, pointers that follow from the lengths, document indices
  // that rise from 0 to S, and the size of the .bin. RequestError if a check fails.
  IndexedSource(const std::string& prefix, std::int64_t vocab_size,
                std::optional<TextOrigin> text = {});

  const std::string& path() const override { return text_ ? text_->path : bin_.path(); }
  const std::string& contents() const override {
    return text_ ? text_->contents : TokenSource::contents();
  }
  const TextMarks* text_marks() const override { return text_ ? &text_->marks : nullptr; }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::int64_t largest_token(std::int64_t most) const override;
  bool has_documents() const override { return documents_ > 1; }
  std::vector<std::int64_t> document_edges(std::int64_t begin, std::int64_t end) const override;

 private:
  // Calls work(T{}) with the type T of a token in the .bin.
  template <class Work>
  auto by_type(Work work) const;
  // Calls visit(token, offset from `begin`) for `count` tokens of type T.
  template <class T, class Visit>
  void each(std::int64_t begin, std::int64_t count, Visit visit) const;

  ReadFile bin_;
  std::optional<TextOrigin> text_;
  std::string idx_;  // the path
  std::int64_t vocab_size_;
  int dtype_ = 0;  // the code in the .idx
  std::int64_t size_ = 0;
  std::int64_t sequences_ = 0, documents_ = 0;
};

}  // namespace trident
