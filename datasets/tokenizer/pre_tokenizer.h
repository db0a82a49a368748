// How a tokenizer cuts a normalized text into pieces, which its model then encodes one by one. The
// kinds of a tokenizer.json's "pre_tokenizer".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct Piece {
  TextRange range;
  bool at_start = false;  // as NormalizedText's
};

struct Pieces {
  std::string text;
  std::vector<Piece> list;  // of `text`; none is empty
  bool continued = false;   // as NormalizedText's
  CodePointClasses* classes = nullptr;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // May cut pieces and change their text.
  virtual void split(Pieces& pieces) const = 0;
};

struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> steps;
  // The last step is to write the bytes of each piece as characters (byte_level.h), which is left
  // to the model.
  bool to_byte_level = false;
};

// Appends what `part` says, in order: a Sequence is several. RequestError for what isn't known.
void read_pre_tokenizers(const JsonPart& part, PreTokenizers& pre_tokenizers);

// to_byte_level as a step of its own, for models that don't know it.
std::unique_ptr<const PreTokenizer> byte_level_step();

}  // namespace trident
