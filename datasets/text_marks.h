// How many bytes of a text lie before some of its tokens. Which token stands for which bytes a
// tokenizer doesn't tell: it may normalise, and decoding its tokens needn't give the text back.
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

// Begins with {0, 0}. Some thousands at most: of many it keeps some, evenly, and always the last.
class TextMarks {
 public:
  TextMarks() = default;
  // A list() that was kept; that of its end alone where it is none: neither member may fall.
  TextMarks(std::vector<TextMark> list, TextMark end);

  // After the last one.
  void add(TextMark mark);
  const std::vector<TextMark>& list() const { return list_; }
  // The nearest at or before a token, and the nearest at or after it; of what lies beyond the end
  // the end.
  std::pair<TextMark, TextMark> around(std::int64_t tokens) const;

 private:
  std::vector<TextMark> list_{TextMark{}};
  std::int64_t spacing_ = 0;  // tokens from one to the next, at least
};

}  // namespace trident
