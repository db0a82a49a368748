// The "decoder" of a tokenizer.json, for each of its types: turns tokens into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"

namespace trident {

// Changes the texts of a list of tokens. The decoded text is their concatenation after all
// decoders.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

// Appends the decoders that `part` describes, in order; a Sequence has several. RequestError for
// unknown types and keys.
void read_decoders(const JsonPart& part, std::vector<Decoder>& decoders);

}  // namespace trident
