// The "post_processor" of a tokenizer.json, for each of its types: the tokens before and after a
// single text, as in a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/tokenizer/json_part.h"

namespace trident {

struct Surroundings {
  std::vector<std::int32_t> before, after;
};

// Adds the tokens that `part` describes; a Sequence has several parts. RequestError for unknown
// types and keys.
void read_post_processor(const JsonPart& part, Surroundings& surroundings);

}  // namespace trident
