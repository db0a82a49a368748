#include "datasets/tokenizer/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/error.h"
#include "datasets/tokenizer/byte_level.h"

namespace trident {
namespace {

using Id = std::int32_t;
using WordNumber = std::uint32_t;

// Two ids. Pairs are ordered by the first id, then by the second.
using Pair = std::uint64_t;
Pair pair_of(Id left, Id right) {
  return static_cast<Pair>(left) << 32 | static_cast<std::uint32_t>(right);
}
Id left_of(Pair pair) {
  return static_cast<Id>(pair >> 32);
}
Id right_of(Pair pair) {
  return static_cast<Id>(pair & 0xffff'ffff);
}

// The counts of pairs: a hash table with open addressing.
class PairCounts {
 public:
  PairCounts() : slots_(1 << 16) {}

  struct Slot {
    Pair pair = kFree;
    std::int64_t count = 0;
    std::int32_t list = -1;  // index of the list of words that got the pair in this round; -1: none
  };
  Slot& operator[](Pair pair) {
    if (used_ * 2 > slots_.size()) grow();
    Slot& slot = slots_[place(pair)];
    if (slot.pair == kFree) {
      slot.pair = pair;
      ++used_;
    }
    return slot;
  }

 private:
  static constexpr Pair kFree = ~Pair{0};

  std::size_t place(Pair pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = ((pair ^ pair >> 29) * 0x9e3779b97f4a7c15u >> 24) & mask;
    while (slots_[at].pair != kFree && slots_[at].pair != pair) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pair != kFree) slots_[place(slot.pair)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// Words as the ids of their symbols, contiguous in memory. A word that gets shorter leaves unused
// memory behind it.
class Words {
 public:
  Words(const WordCounts& words, const std::array<Id, 256>& id_of_byte) {
    symbols_.reserve(words.bytes());
    words_.reserve(words.words().size());
    for (const WordCounts::Word& word : words.words()) {
      words_.push_back({symbols_.size(), word.size, static_cast<std::int64_t>(word.count)});
      for (const char byte : word.text()) {
        symbols_.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
      }
    }
  }

  struct Word {
    std::uint64_t begin;
    std::uint32_t size;
    std::int64_t count;
  };
  std::vector<Word>& list() { return words_; }
  Id* symbols(const Word& word) { return symbols_.data() + word.begin; }

 private:
  std::vector<Id> symbols_;
  std::vector<Word> words_;
};

class Trainer {
 public:
  explicit Trainer(const BpeTraining& training) : training_(training) {
    for (const std::string& token : training.special_tokens) {
      if (known_.emplace(token, static_cast<Id>(result_.tokens.size())).second) add_token(token, 0);
    }
    add_bytes();
    const auto fewest = static_cast<std::int64_t>(result_.tokens.size());
    if (training.vocab_size >= fewest) return;
    throw RequestError(fmt::format("a vocabulary of {} is too small: the 256 bytes{} need {}",
                                   training.vocab_size,
                                   known_.empty() ? "" : " and the special tokens", fewest));
  }

  TrainedBpe train(WordCounts counted) {
    Words words(counted, id_of_byte_);
    counted = {};
    count_pairs(words);
    const auto vocab_size = static_cast<std::size_t>(training_.vocab_size);
    while (result_.tokens.size() < vocab_size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const std::int64_t count = counts_[best.pair].count;
      if (count != best.count) {  // lower: some occurrences were lost to other merges
        queue_.push({count, best.pair, best.list});
        continue;
      }
      if (count < std::max<std::int64_t>(1, training_.min_frequency)) break;
      merge(words, best);
      if (training_.progress) {
        training_.progress(static_cast<std::int64_t>(result_.merges.size()));
      }
    }
    return std::move(result_);
  }

 private:
  struct Candidate {
    std::int64_t count;
    Pair pair;
    std::int32_t list;  // index of the list of words that may have the pair
    // The top of the queue is the largest: the highest count, then the lowest pair.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add_token(std::string text, std::int64_t bytes) {
    result_.tokens.push_back(std::move(text));
    lengths_.push_back(bytes);
  }

  // Adds the 256 bytes in the order of their characters.
  void add_bytes() {
    std::vector<std::pair<std::string, int>> characters;
    for (int byte = 0; byte < 256; ++byte) {
      characters.emplace_back(to_byte_level(std::string(1, static_cast<char>(byte))), byte);
    }
    std::ranges::sort(characters);  // UTF-8 has the order of code points
    for (const auto& [text, byte] : characters) {
      const auto found = known_.find(text);
      Id& id = id_of_byte_[static_cast<std::size_t>(byte)];
      if (found == known_.end()) {
        id = static_cast<Id>(result_.tokens.size());
        add_token(text, 1);
      } else {  // a special token
        id = found->second;
        lengths_[static_cast<std::size_t>(id)] = 1;
      }
    }
  }

  void count_pairs(Words& words) {
    for (std::size_t i = 0; i < words.list().size(); ++i) {
      const Words::Word& word = words.list()[i];
      const Id* symbols = words.symbols(word);
      for (std::uint32_t at = 0; at + 1 < word.size; ++at) {
        found(pair_of(symbols[at], symbols[at + 1]), word.count, static_cast<WordNumber>(i));
      }
    }
    queue_found();
  }

  // Counts a pair in a word. Word numbers must not decrease from call to call within a round.
  void found(Pair pair, std::int64_t count, WordNumber word) {
    PairCounts::Slot& slot = counts_[pair];
    slot.count += count;
    if (slot.list < 0) {
      slot.list = new_list();
      found_.push_back(pair);
    }
    std::vector<WordNumber>& list = lists_[static_cast<std::size_t>(slot.list)];
    if (list.empty() || list.back() != word) list.push_back(word);
  }

  std::int32_t new_list() {
    if (free_lists_.empty()) {
      lists_.emplace_back();
      return static_cast<std::int32_t>(lists_.size() - 1);
    }
    const std::int32_t list = free_lists_.back();
    free_lists_.pop_back();
    return list;
  }

  // Queues the round's new pairs. A pair is new in one round only: that of the later of its
  // symbols.
  void queue_found() {
    for (const Pair pair : found_) {
      PairCounts::Slot& slot = counts_[pair];
      queue_.push({slot.count, pair, slot.list});
      slot.list = -1;
    }
    found_.clear();
  }

  void merge(Words& words, const Candidate& best) {
    const Id left = left_of(best.pair), right = right_of(best.pair);
    const auto text_of = [&](Id id) { return result_.tokens[static_cast<std::size_t>(id)]; };
    const std::string text = text_of(left) + text_of(right);
    const auto special = known_.find(text);
    Id joined = static_cast<Id>(result_.tokens.size());
    if (special != known_.end()) {
      joined = special->second;
      lengths_[static_cast<std::size_t>(joined)] = length(left) + length(right);
    } else {
      add_token(text, length(left) + length(right));
    }
    result_.merges.emplace_back(left, right);
    std::vector<WordNumber> list = std::move(lists_[static_cast<std::size_t>(best.list)]);
    for (const WordNumber number : list) merge_in(words, number, left, right, joined);
    lists_[static_cast<std::size_t>(best.list)] = {};
    free_lists_.push_back(best.list);
    queue_found();
  }

  std::int64_t length(Id id) const { return lengths_[static_cast<std::size_t>(id)]; }

  void merge_in(Words& words, WordNumber number, Id left, Id right, Id joined) {
    Words::Word& word = words.list()[number];
    Id* symbols = words.symbols(word);
    const auto pair_is_short = [&](Id other) {
      return length(other) + length(joined) < training_.max_token_length;
    };
    std::uint32_t to = 0;
    for (std::uint32_t from = 0; from < word.size;) {
      if (symbols[from] != left || from + 1 == word.size || symbols[from + 1] != right) {
        symbols[to++] = symbols[from++];
        continue;
      }
      from += 2;
      if (to > 0) {
        const Id before = symbols[to - 1];
        counts_[pair_of(before, left)].count -= word.count;
        if (pair_is_short(before)) found(pair_of(before, joined), word.count, number);
      }
      symbols[to++] = joined;
      if (from < word.size) {
        const Id after = symbols[from];
        counts_[pair_of(right, after)].count -= word.count;
        if (pair_is_short(after)) found(pair_of(joined, after), word.count, number);
      }
    }
    word.size = to;
  }

  const BpeTraining& training_;
  TrainedBpe result_;
  std::unordered_map<std::string, Id> known_;  // special tokens
  std::vector<std::int64_t> lengths_;          // bytes of each token
  std::array<Id, 256> id_of_byte_{};
  PairCounts counts_;
  std::vector<Pair> found_;  // new pairs of this round
  std::vector<std::vector<WordNumber>> lists_;
  std::vector<std::int32_t> free_lists_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

std::uint64_t training_memory(const WordCounts& words) {
  // Measured. kWord: a word's entries in both tables and in the lists of its pairs. kByte: a byte's
  // copy, its symbol, and its successive entries in lists.
  constexpr std::uint64_t kWord = 80, kByte = 24;
  return words.words().size() * kWord + words.bytes() * kByte;
}

TrainedBpe train_bpe(WordCounts words, const BpeTraining& training) {
  return Trainer(training).train(std::move(words));
}

}  // namespace trident
