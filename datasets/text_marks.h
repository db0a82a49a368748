// The number of text bytes before some of the tokens of a text. A tokenizer doesn't report the
// bytes of each token: it may normalise the text, and decoding its tokens needn't give the text
// back.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace trident {

struct TextMark {
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
  bool operator==(const TextMark&) const = default;
};

// A list of marks that begins with {0, 0}. It has some thousands of marks at most: of more marks it
// keeps an evenly spaced part, and always the last.
class TextMarks {
 public:
  TextMarks() = default;
  // Restores a stored list(). If `list` isn't valid (it begins with {0, 0}, neither member
  // decreases, it ends with `end`), the marks are {0, 0} and `end`.
  TextMarks(std::vector<TextMark> list, TextMark end);

  // Adds a mark. Neither member may be below that of the last mark.
  void add(TextMark mark);
  const std::vector<TextMark>& list() const { return list_; }
  // The nearest mark at or before a token, and the nearest mark at or after it. Beyond the end,
  // both are the last mark.
  std::pair<TextMark, TextMark> around(std::int64_t tokens) const;

 private:
  std::vector<TextMark> list_{TextMark{}};
  std::int64_t spacing_ = 0;  // the least number of tokens between marks
};

}  // namespace trident
