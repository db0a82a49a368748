// What a tokenizer.json searches for: {"String": "…"} or {"Regex": "…"}.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct Pattern {
  std::string text;  // itself; "" where `regex` is given
  std::optional<Regex> regex;

  // Its matches from left to right, none beside or in another.
  void find(std::string_view in, std::vector<TextRange>& matches) const;
};

Pattern read_pattern(const JsonPart& part, std::string_view key);

}  // namespace trident
