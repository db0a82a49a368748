// The regular expressions with which GPT-2 and most later byte-level tokenizers split text, as
// handwritten matchers. The matches equal Oniguruma's, and are found several times faster.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/regex.h"

namespace trident {

// GPT-2's expression (encoder.py), which splits before each space.
extern const char* const kGpt2Pattern;

// An expression and the name of the model that uses it.
struct NamedPattern {
  std::string_view name, regex;
};
std::span<const NamedPattern> named_gpt_patterns();  // gpt2, llama3, qwen2

struct GptPattern {
  bool later = false;  // GPT-4's family (Llama 3, Qwen 2), which treats spaces differently
  int digits = 0;      // if `later`: the most digits in a match

  // Returns nullopt if `regex` isn't one of the known expressions.
  static std::optional<GptPattern> of(std::string_view regex);

  // Finds the matches. They cover `text` without gaps.
  void find(std::string_view text, std::vector<TextRange>& matches,
            CodePointClasses& classes) const;
};

}  // namespace trident
