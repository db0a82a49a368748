// Documents of files in blocks that can be encoded apart from each other: what the threads of
// tokenize() share out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/document_encoder.h"
#include "datasets/input_stream.h"

namespace trident {

// Text that is encoded at once, if the tokenizer can tell where to cut.
constexpr std::size_t kTextBlock = std::size_t{1} << 18;

// A part of a document, a whole one, or lines of JSON that each are one.
struct TextPart {
  std::string text;
  bool lines = false;
  bool continued = false;  // the document began in the part before
  bool ends = true;        // with this part
  std::int64_t place = 1;  // its first line; of .parquet its row
  std::size_t column = 0;  // bytes of that line that are in the part before
};

struct DocumentBlock {
  const SourceFile* file = nullptr;
  std::vector<TextPart> parts;
};

// Where a part stands, for errors: "FILE:LINE: ".
std::string place_of(const SourceFile& file, std::int64_t line);

class DocumentBlocks {
 public:
  DocumentBlocks(const std::vector<SourceFile>& files, const DocumentEncoder& encoder);
  ~DocumentBlocks();

  // The next block, nullopt after the last. RequestError as tokenize() says.
  std::optional<DocumentBlock> next();
  std::uint64_t read() const;  // bytes of the files

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
  std::uint64_t before_ = 0;  // bytes of the files that are done
};

}  // namespace trident
