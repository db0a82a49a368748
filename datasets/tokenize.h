// Turns files of text into tokens, in the order of files and documents, with several threads and
// bounded memory. A text file, a line of .jsonl and a row of .parquet are a document each.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "datasets/document_encoder.h"
#include "datasets/indexed_writer.h"
#include "datasets/source_files.h"
#include "datasets/text_marks.h"

namespace trident {

struct TokenizingProgress : ReadingProgress {
  std::int64_t tokens = 0;
};

struct TokenizingOptions {
  int threads = 1;
  // Called on the calling thread at most every 200 ms, and at the end.
  std::function<void(const TokenizingProgress&)> progress;
};

// Appends all documents to `to`. Doesn't commit it. Returns the marks of the text, whose last mark
// has all tokens and bytes. The bytes are those of the text that the tokenizer gets, without the
// ends of documents. RequestError with file and line for text that isn't UTF-8, a line that isn't a
// JSON object with the key, a truncated or damaged file, and a document longer than 64 MiB in which
// the tokenizer can't find a place to split.
TextMarks tokenize(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                   IndexedWriter& to, const TokenizingOptions& options);

}  // namespace trident
