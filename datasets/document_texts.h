// The texts of the documents in a block, ready to be cut by a tokenizer.
#pragma once

#include <functional>
#include <string_view>

#include "datasets/document_blocks.h"

namespace trident {

// Each part of a document, of JSON lines each line's text, in order; UTF-8 where the encoder has a
// tokenizer. Empty lines of JSON are passed over. RequestError with file and line for what can't be
// read, as tokenize() says.
void each_text(DocumentBlock& block, const DocumentEncoder& encoder,
               const std::function<void(TextPart&)>& visit);

// Of a part that may be long, as lines of JSON and rows are whole documents: what is encoded at
// once, as far as the tokenizer can tell where to cut. `continued`: as Tokenizer::encode's.
void each_range(const TextPart& part, const Tokenizer& tokenizer, Tokenizer::Memory& memory,
                  const std::function<void(std::string_view text, bool continued)>& visit);

}  // namespace trident
