// Counts of words; a word is any sequence of bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace trident {

class WordCounts {
 public:
  struct Word {
    const char* bytes;
    std::uint32_t size, hash;
    std::uint64_t count;
    std::string_view text() const { return {bytes, size}; }
  };

  WordCounts() : slots_(kFewestSlots) {}

  void add(std::string_view word, std::uint64_t count);
  void add(const WordCounts& others);
  // Removes the words with at most this count.
  void drop_rare(std::uint64_t count);

  const std::vector<Word>& words() const { return words_; }  // in the order of their first add()
  std::uint64_t bytes() const { return bytes_; }             // of the texts of all words

 private:
  static constexpr std::size_t kFewestSlots = 1024;
  static constexpr std::size_t kChunk = std::size_t{1} << 16;  // bytes

  void add(std::string_view word, std::uint32_t hash, std::uint64_t count);
  const char* keep(std::string_view word);
  void rehash(std::size_t slots);

  std::vector<Word> words_;
  // A hash table with open addressing. A slot has a word's index plus one; 0 is free.
  std::vector<std::uint32_t> slots_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t chunk_left_ = 0;
  char* chunk_ = nullptr;  // where the next word's bytes go
  std::uint64_t bytes_ = 0;
};

}  // namespace trident
