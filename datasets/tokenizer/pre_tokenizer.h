// The "pre_tokenizer" of a tokenizer.json, for each of its types: splits a normalized text into
// pieces (pre-tokens). The model then encodes the pieces one by one. Pre-tokenizers are read-only;
// each thread has its own Pieces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct Piece {
  TextRange range;
  bool at_start = false;  // as in NormalizedText
};

struct Pieces {
  std::string text;
  std::vector<Piece> list;  // ranges of `text`; none is empty
  bool continued = false;   // as in NormalizedText
  CodePointClasses* classes = nullptr;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Splits the pieces further, or changes their text.
  virtual void split(Pieces& pieces) const = 0;
};

struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  // After `steps`, the bytes of each piece must still be written as characters (byte_level.h). The
  // model does so if it can (read_model).
  bool to_byte_level = false;
};

// Appends the steps that `part` describes, in order; a Sequence has several. RequestError for
// unknown types and keys.
void read_pre_tokenizers(const JsonPart& part, PreTokenizers& pre_tokenizers);

// A step that writes bytes as characters, for models that can't convert pieces themselves.
std::unique_ptr<const PreTokenizer> byte_level_step();

}  // namespace trident
