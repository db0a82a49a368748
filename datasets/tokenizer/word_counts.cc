#include "datasets/tokenizer/word_counts.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/content_hash.h"

namespace trident {

void WordCounts::add(std::string_view word, std::uint64_t count) {
  add(word, static_cast<std::uint32_t>(content_hash(word)), count);
}

void WordCounts::add(const WordCounts& others) {
  for (const Word& word : others.words_) add(word.text(), word.hash, word.count);
}

void WordCounts::add(std::string_view word, std::uint32_t hash, std::uint64_t count) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    Word& known = words_[slots_[at] - 1];
    if (known.hash == hash && known.text() == word) {
      known.count += count;
      return;
    }
  }
  if (words_.size() >= 0xffff'fff0) throw Error("more than 2^32 different words");
  words_.push_back({keep(word), static_cast<std::uint32_t>(word.size()), hash, count});
  slots_[at] = static_cast<std::uint32_t>(words_.size());
  if (words_.size() * 2 > slots_.size()) rehash(slots_.size() * 2);
}

const char* WordCounts::keep(std::string_view word) {
  bytes_ += word.size();
  if (word.size() > chunk_left_) {
    const std::size_t size = std::max(kChunk, word.size());
    // std::make_unique would fill the memory with zeros.
    chunks_.emplace_back(new char[size]);
    chunk_ = chunks_.back().get();
    chunk_left_ = size;
  }
  char* kept = chunk_;
  std::memcpy(kept, word.data(), word.size());
  chunk_ += word.size();
  chunk_left_ -= word.size();
  return kept;
}

void WordCounts::rehash(std::size_t slots) {
  slots_.assign(slots, 0);
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::size_t at = words_[i].hash & (slots - 1);
    while (slots_[at] != 0) at = (at + 1) & (slots - 1);
    slots_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

void WordCounts::drop_rare(std::uint64_t count) {
  WordCounts kept;
  for (const Word& word : words_) {
    if (word.count > count) kept.add(word.text(), word.hash, word.count);
  }
  *this = std::move(kept);
}

}  // namespace trident
