// A search pattern of a tokenizer.json: {"String": "…"} or {"Regex": "…"}. Read-only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/regex.h"

namespace trident {

struct Pattern {
  std::string text;  // the string; "" if there is a `regex`
  std::optional<Regex> regex;

  // Finds the matches from left to right. They don't overlap, and an empty match
  // directly after a match is left out.
  void find(std::string_view in, std::vector<TextRange>& matches) const;
};

// RequestError for an empty string and an invalid regular expression.
Pattern read_pattern(const JsonPart& part, std::string_view key);

}  // namespace trident
