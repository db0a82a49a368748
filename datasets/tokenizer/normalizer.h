// What a tokenizer does to a text before it cuts it: normal forms, replacements, SentencePiece's
// character maps. The kinds of a tokenizer.json's "normalizer".
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct NormalizedText {
  std::string text;
  // Whether it begins where the document does, and nothing of that was taken away: "first" of
  // Metaspace's prepend_scheme asks it.
  bool at_start = true;
  // Goes on with a document whose text before it was given apart: nothing is put before it.
  bool continued = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, CodePointClasses& classes) const = 0;
};

// Error where a text of `before` bytes has become one of `bytes`, which no language needs.
void require_bounded_growth(std::size_t before, std::size_t bytes);

using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;

// Appends what `part` says, in order: a Sequence is several. RequestError for what isn't known.
void read_normalizers(const JsonPart& part, Normalizers& normalizers);

}  // namespace trident
