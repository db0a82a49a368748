// How tokens become text again. The kinds of a tokenizer.json's "decoder".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "datasets/tokenizer/json_part.h"

namespace trident {

// Changes the texts of a list of tokens; what comes out, joined, is the text.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

// Appends what `part` says, in order: a Sequence is several. RequestError for what isn't known.
void read_decoders(const JsonPart& part, std::vector<Decoder>& decoders);

}  // namespace trident
