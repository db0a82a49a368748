// The regular expressions by which GPT-2 and most byte-level tokenizers since cut text, written
// out: the same matches as Oniguruma's, several times faster.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/regex.h"

namespace trident {

// GPT-2's (encoder.py), which cuts before each space:
extern const char* const kGpt2Pattern;

// Those that have a name here: the expressions of the models of that name.
struct NamedPattern {
  std::string_view name, regex;
};
std::span<const NamedPattern> named_gpt_patterns();  // gpt2, llama3, qwen2

struct GptPattern {
  bool later = false;  // of GPT-4's family, as Llama 3 and Qwen 2 have it: other rules for spaces
  int digits = 0;      // there: the most digits in a piece

  // nullopt where `regex` isn't one of them.
  static std::optional<GptPattern> of(std::string_view regex);

  // The matches, which cover `text`.
  void find(std::string_view text, std::vector<TextRange>& matches,
            CodePointClasses& classes) const;
};

}  // namespace trident
