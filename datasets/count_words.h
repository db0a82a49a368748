// Counts the words into which a tokenizer splits the texts of files. Vocabularies are trained on
// these counts. It uses several threads and bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "datasets/document_encoder.h"
#include "datasets/source_files.h"
#include "datasets/tokenizer/word_counts.h"

namespace trident {

struct WordCounting {
  int threads = 1;
  // true: each line of a text file, with its line end, is split on its own, as if it were a
  // separate text. false: a text file is one text. A document of .jsonl or .parquet is always one
  // text.
  bool by_line = true;
  // Approximate bytes that training on the words may take. If the words need more, the rarest words
  // so far are dropped, as in word2vec.
  std::uint64_t memory = std::uint64_t{4} << 30;
  std::function<void(const ReadingProgress&)> progress;  // at most every 200 ms, and at the end
};

struct CountedWords {
  WordCounts words;
  std::uint64_t text_bytes = 0, total = 0;  // total: all occurrences of words
  // Words with at most this count were dropped when memory ran out; 0: no word was dropped.
  std::uint64_t left_out = 0;
};

// The result doesn't depend on the number of threads. Throws RequestError as tokenize() does.
CountedWords count_words(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                         const WordCounting& options);

}  // namespace trident
