// The bytes of text behind a stretch of tokens, for bits a byte.
#pragma once

#include <cstdint>

#include "datasets/token_source.h"
#include "datasets/tokenizer/tokenizer.h"

namespace trident {

// Of tokens [begin, end) of a source. Where these were made of a text, its own bytes: what a
// tokenizer normalises, or doesn't give back, counts as it was; an end of text, which is none of
// it, doesn't. Of the bytes between two marks (text_marks.h) tokens have shares as long as what
// they decode to. Of tokens whose text isn't known, the bytes of what they decode to. `tokenizer`:
// nullptr for bytes.
std::int64_t text_bytes_of(const TokenSource&, std::int64_t begin, std::int64_t end,
                           const Tokenizer* tokenizer);

}  // namespace trident
