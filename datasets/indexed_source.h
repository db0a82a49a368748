// Megatron's indexed dataset, PREFIX.bin and PREFIX.idx. The .idx is little-endian and unpadded:
// "MMIDIDX\0\0", u64 version 1, u8 dtype, u64 sequences S, u64 documents + 1 D, S i32 lengths, S
// i64 byte pointers, D i64 document indices; the .bin holds the bare tokens, which are read when
// they are needed. Written by Megatron-LM's tools and by scripts/tokenize_corpus.py.
#pragma once

#include <cstddef>
#include <optional>

#include "base/files/file.h"
#include "datasets/token_source.h"

namespace trident {

// Of tokens that a cache holds.
struct MadeOfText {
  std::string path;      // of the text
  std::string contents;  // what they were made of
  TextMarks marks;
};

class IndexedSource : public TokenSource {
 public:
  // Opens both files and checks them against each other: magic, version, an integer dtype, the
  // exact size of the .idx, lengths >= 0, pointers that follow from the lengths, document indices
  // that rise from 0 to S, and the size of the .bin. A broken rule is a RequestError.
  IndexedSource(const std::string& prefix, std::int64_t vocab_size,
                std::optional<MadeOfText> text = {});

  const std::string& path() const override { return text_ ? text_->path : bin_.path(); }
  const std::string& contents() const override {
    return text_ ? text_->contents : TokenSource::contents();
  }
  const TextMarks* text_marks() const override { return text_ ? &text_->marks : nullptr; }
  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::int64_t largest_token(std::int64_t most) const override;

 private:
  // work(T) with the type of a token.
  template <class Work>
  auto by_type(Work work) const;
  // Calls visit(token, place from `begin`) for tokens of that type.
  template <class T, class Visit>
  void each(std::int64_t begin, std::int64_t count, Visit visit) const;

  ReadFile bin_;
  std::optional<MadeOfText> text_;
  std::int64_t vocab_size_;
  int dtype_ = 0;  // the .idx's code
  std::int64_t size_ = 0;
};

}  // namespace trident
