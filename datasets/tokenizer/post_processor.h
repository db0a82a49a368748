// Tokens that are put before and after a text, as a prompt has them. The kinds of a
// tokenizer.json's "post_processor", for single texts.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/tokenizer/json_part.h"

namespace trident {

struct Surroundings {
  std::vector<std::int32_t> before, after;
};

// Adds what `part` says; a Sequence says several things. RequestError for what isn't known.
void read_post_processor(const JsonPart& part, Surroundings& surroundings);

}  // namespace trident
