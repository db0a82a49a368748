// Regular expressions of a tokenizer.json, and classes of code points: Oniguruma's, which the
// `tokenizers` package uses too, so both find the same matches.
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

// May be used by several threads at once.
class Regex {
 public:
  // RequestError, with Oniguruma's reason, where `pattern` isn't one.
  explicit Regex(const std::string& pattern);

  // The matches in `text`, which is UTF-8, from left to right: they don't overlap, and an empty one
  // right after a match is left out. Error where a match takes more than Oniguruma's limit of
  // steps, as patterns can that go back and forth.
  void find(std::string_view text, std::vector<TextRange>& matches) const;

 private:
  std::shared_ptr<const void> compiled_;
};

// What a code point is in Unicode 14: bits of a mask. (`tokenizers` knows marks and punctuation of
// Unicode 8 or 9, for BERT's normalizer and the like; the few later ones differ.)
enum CodePointClass : std::uint16_t {
  kLetter = 1,       // category L
  kNumber = 2,       // category N
  kSpace = 4,        // property White_Space
  kPunctuation = 8,  // category P, and ASCII's symbols
  kWord = 16,        // what \w matches
  kNonspacing = 32,  // category Mn
  kMark = 64,        // category M
  kOther = 128,      // categories Cc, Cf, Co: controls, formats, private ones
};

// The classes of code points, found out at their first use. One for each thread.
class CodePointClasses {
 public:
  CodePointClasses() : masks_(0x110000) {}

  std::uint16_t of(char32_t code) {
    std::uint16_t& mask = masks_[code];
    if (mask == 0) mask = classify(code);
    return mask;
  }

 private:
  static std::uint16_t classify(char32_t code);  // with a bit of its own, so never 0

  std::vector<std::uint16_t> masks_;
};

}  // namespace trident
