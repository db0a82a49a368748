// Counts the bytes of text that a contiguous range of tokens stands for. Bits per byte divides by
// this number.
#pragma once

#include <cstdint>

#include "datasets/token_source.h"
#include "datasets/tokenizer/tokenizer.h"

namespace trident {

// The bytes of tokens [begin, end) of a source. `tokenizer` is nullptr if tokens are bytes.
//
// If the tokens were made from a text, counts the bytes of the original text: characters that the
// tokenizer normalises or drops count as they were, and an end-of-text token counts nothing. The
// bytes between two marks (datasets/text_marks.h) are divided among their tokens in
// proportion to the decoded lengths. If the text isn't known, counts the decoded bytes.
std::int64_t text_bytes_of(const TokenSource&, std::int64_t begin, std::int64_t end,
                           const Tokenizer* tokenizer);

}  // namespace trident
