// Trains byte-level BPE on counted words: makes the vocabulary and the merges. The result equals
// that of Hugging Face's trainer (tokenizers 0.23, models/bpe/trainer.rs), id by id.
//
// The first symbols are bytes. The most frequent pair of neighbouring symbols becomes a new symbol,
// until the vocabulary is full. Of equally frequent pairs, the pair with the lower first id wins,
// then with the lower second id. Counts have 64 bits here. Hugging Face's have 32, and a corpus of
// a few dozen GB exceeds them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "datasets/tokenizer/word_counts.h"

namespace trident {

struct BpeTraining {
  std::int64_t vocab_size = 30000;  // ids: special tokens, 256 bytes, and one for each merge
  std::int64_t min_frequency = 2;   // the least count of a pair to merge; values below 1 mean 1
  // Tokens made by merges are shorter than this many bytes (as in Hugging Face's trainer).
  std::int64_t max_token_length = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> special_tokens;  // get the first ids; duplicates are left out
  // Called after each merge, with the number of merges so far.
  std::function<void(std::int64_t merges)> progress;
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // by id, with bytes as characters, as in a tokenizer.json
  std::vector<std::pair<std::int32_t, std::int32_t>>
      merges;  // pairs of ids, in the order of the merges
};

// The approximate bytes that train_bpe takes for the words, including the words themselves.
std::uint64_t training_memory(const WordCounts& words);

// Frees `words` as soon as it no longer needs them. RequestError if `vocab_size` is less than the
// number of special tokens and bytes.
TrainedBpe train_bpe(WordCounts words, const BpeTraining& training);

}  // namespace trident
