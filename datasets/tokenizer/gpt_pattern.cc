#include "datasets/tokenizer/gpt_pattern.h"

#include "base/utf8.h"

namespace trident {
namespace {

constexpr std::string_view kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Matches a text: tries the alternatives of the expression in their order.
class Matcher {
 public:
  Matcher(std::string_view text, CodePointClasses& classes, const GptPattern& pattern)
      : text_(text), classes_(classes), pattern_(pattern) {}

  // Returns the end of the match that begins at `at`, which must be before the text's end.
  std::size_t end_of(std::size_t at) {
    std::size_t end = contraction(at);
    if (end == at) end = letters(at);
    if (end == at) end = numbers(at);
    if (end == at) end = others(at);
    return end == at ? spaces(at) : end;
  }

 private:
  struct Character {
    std::size_t end = 0;  // 0: no character, the text ends
    char32_t code = 0;
    std::uint16_t mask = 0;
    bool is(int classes) const { return end != 0 && (mask & classes) != 0; }
    bool ends_line() const { return end != 0 && (code == '\r' || code == '\n'); }
  };
  Character character(std::size_t at) {
    if (at >= text_.size()) return {};
    const CodePoint c = next_code_point(text_, at);
    return {at + c.bytes, c.code, classes_.of(c.code)};
  }
  // The end of the run of wanted characters from `at` on.
  template <class Wanted>
  std::size_t run(std::size_t at, Wanted wanted) {
    for (Character c = character(at); c.end != 0 && wanted(c); c = character(at)) at = c.end;
    return at;
  }

  std::size_t contraction(std::size_t at) {
    if (text_[at] != '\'') return at;
    const auto lower = [&](char32_t c) -> char32_t {
      if (!pattern_.later) return c;
      if (c == 0x17f) return 's';  // the long s matches s without regard to case
      return c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const Character first = character(at + 1);
    const char32_t a = lower(first.code);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.end;
    const Character second = first.end == 0 ? Character{} : character(first.end);
    const char32_t b = lower(second.code);
    const bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? second.end : at;
  }

  std::size_t letters(std::size_t at) {
    const Character first = character(at);
    const bool prefix =
        pattern_.later ? !first.ends_line() && !first.is(kLetter | kNumber) : first.code == ' ';
    const std::size_t begin = prefix ? first.end : at;
    const std::size_t end = run(begin, [](const Character& c) { return c.is(kLetter); });
    return end == begin ? at : end;
  }

  std::size_t numbers(std::size_t at) {
    const auto number = [](const Character& c) { return c.is(kNumber); };
    if (pattern_.later) {
      int left = pattern_.digits;
      return run(at, [&](const Character& c) { return number(c) && left-- > 0; });
    }
    const std::size_t begin = text_[at] == ' ' ? at + 1 : at;
    const std::size_t end = run(begin, number);
    return end == begin ? at : end;
  }

  std::size_t others(std::size_t at) {
    const std::size_t begin = text_[at] == ' ' ? at + 1 : at;
    const std::size_t end =
        run(begin, [](const Character& c) { return !c.is(kSpace | kLetter | kNumber); });
    if (end == begin) return at;
    return pattern_.later ? run(end, [](const Character& c) { return c.ends_line(); }) : end;
  }

  // A run of white space: all of it at the text's end, else without its last character. With
  // `later`, up to its last line end if it has one.
  std::size_t spaces(std::size_t at) {
    std::size_t last = at, line = at;
    const std::size_t end = run(at, [&](const Character& c) {
      if (!c.is(kSpace)) return false;
      last = code_point_before(text_, c.end);
      if (c.ends_line()) line = c.end;
      return true;
    });
    if (pattern_.later && line > at) return line;
    return end == text_.size() || last == at ? end : last;
  }

  std::string_view text_;
  CodePointClasses& classes_;
  const GptPattern& pattern_;
};

}  // namespace

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::span<const NamedPattern> named_gpt_patterns() {
  static const NamedPattern all[] = {
      {"gpt2", kGpt2Pattern}, {"llama3", kThreeDigits}, {"qwen2", kOneDigit}};
  return all;
}

std::optional<GptPattern> GptPattern::of(std::string_view regex) {
  if (regex == kGpt2Pattern) return GptPattern{};
  if (regex == kOneDigit) return GptPattern{.later = true, .digits = 1};
  if (regex == kThreeDigits) return GptPattern{.later = true, .digits = 3};
  return std::nullopt;
}

void GptPattern::find(std::string_view text, std::vector<TextRange>& matches,
                      CodePointClasses& classes) const {
  matches.clear();
  Matcher matcher(text, classes, *this);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = matcher.end_of(at);
    matches.push_back({at, end});
    at = end;
  }
}

}  // namespace trident
