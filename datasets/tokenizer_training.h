// Makes a byte-level BPE tokenizer from texts: that of Hugging Face's ByteLevelBPETokenizer,
// trained on the same.
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
  std::string pattern;             // words are its matches, and what is between them
  std::string json_key = "text";   // of a document's text in .jsonl and .parquet
  bool replace_errors = false;     // U+FFFD for what isn't UTF-8; else that is an error
  WordCounting counting;
  BpeTraining bpe;
  std::function<void(const std::string&)> tell;  // what is left out of folders
};

struct TrainedTokenizer {
  std::string text;  // the tokenizer.json
  std::int64_t vocab_size = 0, merges = 0;
  std::uint64_t text_bytes = 0, words = 0, distinct_words = 0;
  std::uint64_t left_out = 0;  // as CountedWords's
};

// RequestError with all problems of the request; for texts that can't be read, as tokenize(); where
// there is no text.
TrainedTokenizer train_tokenizer(const TokenizerTraining& request);

}  // namespace trident
