// A cache of the ids of recently encoded words. Not thread-safe: each thread has its own. It
// empties itself when it has 2^17 words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/vocabulary.h"

namespace trident {

class WordCache {
 public:
  // Appends the word's ids. If the cache doesn't have them, encode(word, ids) must append them.
  template <class Encode>
  void append(std::string_view word, std::vector<std::int32_t>& ids, Encode encode) {
    if (word.size() > kLongest) return encode(word, ids);
    const auto found = words_.find(word);
    if (found != words_.end()) {
      const Span span = found->second;
      ids.insert(ids.end(), ids_.begin() + span.begin, ids_.begin() + span.begin + span.count);
      return;
    }
    const std::size_t before = ids.size();
    encode(word, ids);
    if (words_.size() >= kMost) {
      words_.clear();
      ids_.clear();
    }
    words_.emplace(word, Span{static_cast<std::int32_t>(ids_.size()),
                              static_cast<std::int32_t>(ids.size() - before)});
    ids_.insert(ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  }

 private:
  static constexpr std::size_t kLongest = 256;    // bytes of a word
  static constexpr std::size_t kMost = 1u << 17;  // words

  struct Span {
    std::int32_t begin, count;
  };
  StringMap<Span> words_;
  std::vector<std::int32_t> ids_;
};

}  // namespace trident
