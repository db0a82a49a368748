// Makes the vocabulary and the merges of byte-level BPE from counted words: those that Hugging
// Face's trainer makes (tokenizers 0.23, models/bpe/trainer.rs), id by id.
//
// Symbols are bytes at first. Of the pairs of neighbours that which comes most often becomes a
// symbol of its own, of equal ones that with the lower first, then the lower second id, until the
// vocabulary is full. Counts have 64 bits here; theirs have 32, which a corpus of a few dozen GB
// exceeds.
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
  std::int64_t min_frequency = 2;   // of a pair that is merged; at least 1 is asked of any
  // Tokens made by merges are shorter than that, in bytes (so it is there).
  std::int64_t max_token_length = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> special_tokens;  // get the first ids; one that comes again is left out
  // Now and then, with the number of merges so far.
  std::function<void(std::int64_t merges)> progress;
};

struct TrainedBpe {
  std::vector<std::string> tokens;  // by id, as in a tokenizer.json: bytes as characters
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // ids, in the order of their making
};

// About what train_bpe takes for the words, with them; bytes.
std::uint64_t training_memory(const WordCounts& words);

// Frees the words as soon as they are no longer needed. RequestError where `vocab_size` holds less
// than the special tokens and the bytes.
TrainedBpe train_bpe(WordCounts words, const BpeTraining& training);

}  // namespace trident
