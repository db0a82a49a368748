// The "normalizer" of a tokenizer.json, for each of its types: changes a text before the tokenizer
// splits it. The types are normal forms, replacements, SentencePiece's character maps and others.
// Normalizers are read-only; each thread has its own CodePointClasses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct NormalizedText {
  std::string text;
  // Whether the text begins at the start of the document and still has the document's first
  // character. Metaspace's prepend_scheme "first" depends on it.
  bool at_start = true;
  // The text continues a document whose earlier text was encoded separately. Nothing is prepended.
  bool continued = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text, CodePointClasses& classes) const = 0;
};

// Error if a text of `before` bytes has grown to `bytes` bytes, beyond a limit that no language
// needs: 64·before + 4096 bytes, and 1 GiB.
void require_bounded_growth(std::size_t before, std::size_t bytes);

using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;

// Appends the normalizers that `part` describes, in order; a Sequence has several. RequestError for
// unknown types and keys.
void read_normalizers(const JsonPart& part, Normalizers& normalizers);

}  // namespace trident
