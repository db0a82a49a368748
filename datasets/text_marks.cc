#include "datasets/text_marks.h"

#include <algorithm>

namespace trident {
namespace {
constexpr std::size_t kMost = 8192;
}  // namespace

TextMarks::TextMarks(std::vector<TextMark> list, TextMark end) : list_(std::move(list)) {
  const auto falls = [](TextMark a, TextMark b) {
    return a.tokens > b.tokens || a.bytes > b.bytes;
  };
  const bool sound = !list_.empty() && list_.front() == TextMark{} && list_.back() == end &&
                     std::ranges::adjacent_find(list_, falls) == list_.end();
  if (!sound) list_ = {TextMark{}, end};
}

void TextMarks::add(TextMark mark) {
  const std::size_t count = list_.size();
  if (count > 1 && list_[count - 1].tokens - list_[count - 2].tokens < spacing_) {
    list_.back() = mark;
    return;
  }
  list_.push_back(mark);
  if (list_.size() < kMost) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list_.size(); i += 2) list_[kept++] = list_[i];
  list_.resize(kept);
  if (list_.back() != mark) list_.push_back(mark);
  spacing_ = mark.tokens / static_cast<std::int64_t>(kMost / 2);
}

std::pair<TextMark, TextMark> TextMarks::around(std::int64_t tokens) const {
  const auto after = std::ranges::lower_bound(list_, tokens, {}, &TextMark::tokens);
  if (after == list_.end()) return {list_.back(), list_.back()};
  if (after->tokens == tokens || after == list_.begin()) return {*after, *after};
  return {*(after - 1), *after};
}

}  // namespace trident
