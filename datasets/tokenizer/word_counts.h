// Words, which are any bytes, and how often each has been seen.
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
  // Those that were seen so often or less often go.
  void drop_rare(std::uint64_t count);

  const std::vector<Word>& words() const { return words_; }  // in the order of their first sight
  std::uint64_t bytes() const { return bytes_; }             // of all words' texts

 private:
  static constexpr std::size_t kFewestSlots = 1024;
  static constexpr std::size_t kChunk = std::size_t{1} << 16;  // bytes

  void add(std::string_view word, std::uint32_t hash, std::uint64_t count);
  const char* keep(std::string_view word);
  void rehash(std::size_t slots);

  std::vector<Word> words_;
  // A hash table with open addressing: a word's number plus one; 0 is free.
  std::vector<std::uint32_t> slots_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t chunk_left_ = 0;
  char* chunk_ = nullptr;  // where the next word's bytes go
  std::uint64_t bytes_ = 0;
};

}  // namespace trident
