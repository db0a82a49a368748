// Counts the words into which a tokenizer cuts the texts of files, by all cores, in bounded memory:
// what a vocabulary is made from.
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
  // Each line of a text file is cut by itself, its line end included, as if nothing surrounded it;
  // else the whole file is one text. Documents of .jsonl and .parquet are always cut whole.
  bool by_line = true;
  // Of what training on the words takes, about. Where there are more, the rarest of those so far
  // are left out, as word2vec does it.
  std::uint64_t memory = std::uint64_t{4} << 30;
  std::function<void(const ReadingProgress&)> progress;  // now and then, and at the end
};

struct CountedWords {
  WordCounts words;
  std::uint64_t text_bytes = 0, total = 0;  // words as they stand in the texts
  // Words that had come at most so often when memory ran out have been left out; 0: none.
  std::uint64_t left_out = 0;
};

// The same whatever the number of threads. RequestErrors as tokenize().
CountedWords count_words(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                         const WordCounting& options);

}  // namespace trident
