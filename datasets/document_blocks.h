// Reads the documents of files in blocks that can be encoded independently of each other. The
// threads of tokenize() and count_words() share these blocks. One thread reads them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/document_encoder.h"
#include "datasets/input_stream.h"

namespace trident {

// Bytes of text that are encoded at once, if the tokenizer can find a place to split there.
constexpr std::size_t kTextBlock = std::size_t{1} << 18;

// A part of a document, a complete document, or lines of JSON with one document each.
struct TextPart {
  std::string text;
  bool lines = false;      // lines of JSON
  bool continued = false;  // the document began in an earlier part
  bool ends = true;        // the document ends with this part
  std::int64_t place = 1;  // the part's first line, or the row of a .parquet file
  std::size_t column = 0;  // bytes of that line in earlier parts
};

struct DocumentBlock {
  const SourceFile* file = nullptr;
  std::vector<TextPart> parts;
};

// The prefix of an error about a line, "FILE:LINE: ", or about a .parquet row, "FILE: row ROW: ".
std::string place_of(const SourceFile& file, std::int64_t line);

class DocumentBlocks {
 public:
  DocumentBlocks(const std::vector<SourceFile>& files, const DocumentEncoder& encoder);
  ~DocumentBlocks();

  // Returns the next block, or nullopt after the last. Throws RequestError as tokenize() does.
  std::optional<DocumentBlock> next();
  std::uint64_t read() const;  // bytes of the files that have been read

 private:
  class Reader;
  class TextReader;
  class LineReader;
  class RowReader;

  const std::vector<SourceFile>& files_;
  const DocumentEncoder& encoder_;
  std::optional<Tokenizer::Memory> memory_;
  std::size_t file_ = 0;
  std::unique_ptr<Reader> reader_;
  std::uint64_t before_ = 0;  // bytes of the completed files
};

}  // namespace trident
