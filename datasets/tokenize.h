// Turns files of text into tokens, by all cores, in the order of files and documents, in bounded
// memory. A text file is a document, as is a line of .jsonl and a row of .parquet.
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
  // Now and then, and at the end.
  std::function<void(const TokenizingProgress&)> progress;
};

// Appends all documents. RequestError with file and line for what can't be read: text that isn't
// UTF-8, lines that aren't JSON objects with the key, cut or damaged files, a document that is
// longer than 64 MiB where the tokenizer can't tell where to cut one. Gives the bytes of text
// before tokens, those of the whole last: text as the tokenizer gets it, without what ends
// documents.
TextMarks tokenize(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                   IndexedWriter& to, const TokenizingOptions& options);

}  // namespace trident
