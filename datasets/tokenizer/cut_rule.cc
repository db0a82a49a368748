#include "datasets/tokenizer/cut_rule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "datasets/tokenizer/gpt_pattern.h"

namespace trident {
namespace {

// The patterns of GPT-4o's and Mistral's vocabularies. They begin a piece where GPT-4's pattern
// does.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Appends the steps of a normalizer or pre-tokenizer, with the steps of nested Sequences.
void flatten(const JsonPart& part, std::string_view list, std::vector<JsonPart>& parts) {
  if (part.string("type") != "Sequence") return parts.push_back(part);
  for (const JsonPart& inner : part.parts(list)) flatten(inner, list, parts);
}

std::vector<JsonPart> parts_of(const JsonPart& root, std::string_view key, std::string_view list) {
  std::vector<JsonPart> parts;
  if (!root.lacks(key)) flatten(root.part(key), list, parts);
  return parts;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// Whether a normalizer changes single characters or runs of spaces only.
bool is_local(const JsonPart& part) {
  const std::string type = part.string("type");
  if (is_one_of(type, {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                       "BertNormalizer", "Precompiled", "Prepend"})) {
    return true;
  }
  if (type == "Strip") return !part.flag("strip_left");
  if (type != "Replace") return false;
  if (!is_one_of(part.string("content"), {" ", "\xe2\x96\x81"})) return false;
  const JsonPart pattern = part.part("pattern");
  return pattern.lacks("Regex") ? pattern.string("String") == " "
                                : is_one_of(pattern.string("Regex"), {" {2,}", "\\s+"});
}

enum class Effect { none, cuts_at_spaces, cuts_at_whitespace, cuts_as_gpt, unknown };

// How a step of a pre-tokenizer splits text. none: the step doesn't affect split points.
Effect effect_of(const JsonPart& part, bool first) {
  const std::string type = part.string("type");
  if (type == "Metaspace") {
    return part.flag("split", true) ? Effect::cuts_at_spaces : Effect::none;
  }
  if (is_one_of(type, {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"})) {
    return Effect::cuts_at_whitespace;
  }
  if (type == "Digits") return Effect::none;
  if (type == "Punctuation") {
    return is_one_of(part.string("behavior", "Isolated"), {"Isolated", "Removed"})
               ? Effect::none
               : Effect::unknown;
  }
  if (type == "ByteLevel") {
    // The step puts a space before each piece that an earlier step has made.
    if (part.flag("add_prefix_space") && !first) return Effect::unknown;
    return part.flag("use_regex", true) ? Effect::cuts_as_gpt : Effect::none;
  }
  if (type != "Split" || part.part("pattern").lacks("Regex")) return Effect::unknown;
  const bool isolates = part.string("behavior") == (part.flag("invert") ? "Removed" : "Isolated");
  const std::string regex = part.part("pattern").string("Regex");
  const bool known = GptPattern::of(regex) || is_one_of(regex, {kGpt4o, kTekken});
  return isolates && known ? Effect::cuts_as_gpt : Effect::unknown;
}

bool is_space(char32_t c, CodePointClasses& classes) {
  return (classes.of(c) & kSpace) != 0;
}

bool is_letter(char32_t c, CodePointClasses& classes) {
  return (classes.of(c) & kLetter) != 0;
}

bool stands_before(char32_t c, CodePointClasses& classes) {
  return (c > 0x20 && c < 0x7f) || is_letter(c, classes);
}

// Returns a character after normalization.
std::string normalized(std::string_view character, const Normalizers& normalizers,
                       CodePointClasses& classes) {
  NormalizedText text{.text = std::string(character), .at_start = false, .continued = true};
  for (const auto& normalizer : normalizers) normalizer->apply(text, classes);
  return text.text;
}

}  // namespace

SplitPoints::SplitPoints(const JsonPart& root, const Normalizers& normalizers,
                         const TokenizerModel& model, const AddedTokens& added,
                         CodePointClasses& classes) {
  for (const JsonPart& part : parts_of(root, "normalizer", "normalizers")) {
    if (!is_local(part)) return;
  }
  const std::string line_end = normalized("\n", normalizers, classes);
  const bool as_space = line_end == " ";
  bool at_spaces = false, at_whitespace = false, as_gpt = false, first = true;
  bool becomes_metaspace = normalized(" ", normalizers, classes) == "\xe2\x96\x81";
  for (const JsonPart& part : parts_of(root, "pre_tokenizer", "pretokenizers")) {
    const Effect effect = effect_of(part, first);
    if (effect == Effect::unknown) return;
    if (part.string("type") == "Metaspace")
      becomes_metaspace = part.character("replacement") == 0x2581;
    at_spaces = at_spaces || effect == Effect::cuts_at_spaces;
    at_whitespace = at_whitespace || effect == Effect::cuts_at_whitespace;
    as_gpt = as_gpt || effect == Effect::cuts_as_gpt;
    first = false;
  }
  if ((at_whitespace || as_gpt) && normalized(" ", normalizers, classes) != " ") return;
  const bool apart =
      !at_spaces && !at_whitespace && !as_gpt && becomes_metaspace && model.parts_at_spaces();
  before_space_ = at_spaces || at_whitespace || as_gpt || apart;
  before_line_end_ = at_whitespace || ((at_spaces || apart) && as_space);
  after_line_end_ =
      (as_gpt && line_end == "\n") || (apart && line_end == "\n" && model.parts_at_line_ends());
  for (const auto& [id, token] : added.tokens()) {
    const std::string text = token.content + token.searched;
    std::size_t spaces = 0, others = 0;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = next_code_point(text, at);
      ++(is_space(c.code, classes) || c.code == 0x2581 ? spaces : others);
      at += c.bytes;
    }
    // The token could span a split point, or strip white space that belongs to the other part.
    if (token.right_strip || (spaces > 0 && others > 0)) *this = {};
    if (token.left_strip) after_line_end_ = false;
  }
}

std::size_t SplitPoints::next(std::string_view text, std::size_t from,
                              const Normalizers& normalizers, CodePointClasses& classes) const {
  if (!before_space_ && !before_line_end_ && !after_line_end_) return std::string_view::npos;
  const auto found = [&](std::size_t at) {
    const std::string_view left =
        text.substr(code_point_before(text, at), at - code_point_before(text, at));
    const CodePoint first = first_code_point(left), second = first_code_point(text.substr(at + 1));
    if (!first.valid || first.bytes != left.size() || !second.valid ||
        !stands_before(first.code, classes) || !is_letter(second.code, classes)) {
      return false;
    }
    const std::string_view right = text.substr(at + 1, second.bytes);
    const std::string before = normalized(left, normalizers, classes);
    const std::string after = normalized(right, normalizers, classes);
    return !before.empty() && !after.empty() &&
           stands_before(next_code_point(before, code_point_before(before, before.size())).code,
                         classes) &&
           is_letter(next_code_point(after, 0).code, classes);
  };
  for (std::size_t at = std::max<std::size_t>(from, 1); at + 1 < text.size(); ++at) {
    if (text[at] == ' ' && before_space_ && found(at)) return at;
    if (text[at] != '\n' || (!before_line_end_ && !after_line_end_) || !found(at)) continue;
    return before_line_end_ ? at : at + 1;
  }
  return std::string_view::npos;
}

}  // namespace trident
