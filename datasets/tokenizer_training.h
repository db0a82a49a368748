// Trains a byte-level BPE tokenizer on texts. The result equals that of Hugging Face's
// ByteLevelBPETokenizer, trained on the same texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "datasets/count_words.h"
#include "datasets/tokenizer/bpe_trainer.h"

namespace trident {

struct TokenizerTraining {
  std::vector<std::string> paths;  // as in data.train; texts, no .bin/.idx pairs
  std::string pattern;             // a word is a match, or the text between two matches
  std::string json_key = "text";   // the key or column of the text in .jsonl and .parquet
  bool replace_errors = false;     // true: invalid UTF-8 becomes U+FFFD; false: it is an error
  WordCounting counting;
  BpeTraining bpe;
  std::function<void(const std::string&)>
      report;  // receives a line about files that a folder leaves out
};

struct TrainedTokenizer {
  std::string text;  // the tokenizer.json
  std::int64_t vocab_size = 0, merges = 0;
  std::uint64_t text_bytes = 0, words = 0, distinct_words = 0;
  std::uint64_t left_out = 0;  // as in CountedWords
};

// Throws one RequestError with all problems of the request; RequestError if there is no text, and
// as tokenize() for texts that can't be read.
TrainedTokenizer train_tokenizer(const TokenizerTraining& request);

}  // namespace trident
