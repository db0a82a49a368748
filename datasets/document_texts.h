// Extracts the texts of the documents in a block, ready for a tokenizer. Worker threads call these
// functions on different blocks at once.
#pragma once

#include <functional>
#include <string_view>

#include "datasets/document_blocks.h"

namespace trident {

// Calls visit() for each part of a document, or for the text of each JSON line, in order. Empty
// JSON lines are skipped. If the encoder has a tokenizer, the text is valid UTF-8. Throws
// RequestError with file and line as tokenize() does.
void each_text(DocumentBlock& block, const DocumentEncoder& encoder,
               const std::function<void(TextPart&)>& visit);

// Splits a long part into ranges of text to encode one by one, as far as the tokenizer can find
// places to split. A JSON line or a row may be long, because it is a complete document.
// `continued`: as for Tokenizer::encode.
void each_range(const TextPart& part, const Tokenizer& tokenizer, Tokenizer::Memory& memory,
                const std::function<void(std::string_view text, bool continued)>& visit);

}  // namespace trident
