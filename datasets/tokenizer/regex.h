// The regular expressions of a tokenizer.json, and classes of code points. Both use Oniguruma. The
// `tokenizers` package uses it too, so both find the same matches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct TextRange {
  std::size_t begin = 0, end = 0;  // bytes
  bool operator==(const TextRange&) const = default;
};

// Thread-safe.
class Regex {
 public:
  // RequestError, with Oniguruma's reason, if `pattern` isn't a regular expression.
  explicit Regex(const std::string& pattern);

  // Finds the matches in `text`, which must be UTF-8, from left to right. They don't overlap. An
  // empty match directly after a match is left out. Error if a match takes more than Oniguruma's
  // limit of steps, which can happen to patterns that backtrack.
  void find(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  std::shared_ptr<const void> compiled_;
};

// The classes of a code point in Unicode 14, as bits of a mask. (BERT's normalizer and similar
// steps of `tokenizers` use the marks and punctuation of Unicode 8 or 9; the few later ones
// differ.)
enum CodePointClass : std::uint16_t {
  kLetter = 1,       // category L
  kNumber = 2,       // category N
  kSpace = 4,        // property White_Space
  kPunctuation = 8,  // category P, and ASCII's symbols
  kWord = 16,        // matched by \w
  kNonspacing = 32,  // category Mn
  kMark = 64,        // category M
  kOther = 128,      // categories Cc, Cf, Co: control, format, private use
};

// A cache of the classes of code points, filled at their first use. Not thread-safe: each thread
// has its own.
class CodePointClasses {
 public:
  CodePointClasses() : masks_(0x110000) {}

  std::uint16_t of(char32_t code) {
    std::uint16_t& mask = masks_[code];
    if (mask == 0) mask = classify(code);
    return mask;
  }

 private:
  static std::uint16_t classify(char32_t code);  // never 0: one bit is always set

  std::vector<std::uint16_t> masks_;
};

}  // namespace trident
