#include "datasets/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/utf8.h"

namespace trident {
namespace {

AddedToken read_token(const JsonPart& part, const Normalizers& normalizers,
                      CodePointClasses& classes) {
  part.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token = {.content = part.string("content"),
                      .single_word = part.flag("single_word"),
                      .left_strip = part.flag("lstrip"),
                      .right_strip = part.flag("rstrip"),
                      .normalized = part.flag("normalized"),
                      .special = part.flag("special")};
  NormalizedText text{.text = token.content};
  if (token.normalized) {
    for (const auto& normalizer : normalizers) normalizer->apply(text, classes);
  }
  token.searched = text.text;
  return token;
}

bool is_word(char32_t c, CodePointClasses& classes) {
  return (classes.of(c) & kWord) != 0 || c == 0x200c || c == 0x200d;
}

// Whether no word continues beyond either end of the match.
bool stands_alone(std::string_view text, TextRange match, CodePointClasses& classes) {
  if (match.begin > 0) {
    const std::size_t before = code_point_before(text, match.begin);
    if (is_word(next_code_point(text, before).code, classes)) return false;
  }
  return match.end == text.size() || !is_word(next_code_point(text, match.end).code, classes);
}

bool is_space(std::string_view text, std::size_t at, CodePointClasses& classes) {
  return (classes.of(next_code_point(text, at).code) & kSpace) != 0;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<JsonPart>& parts, const TokenizerModel& model,
                         const Normalizers& normalizers, CodePointClasses& classes) {
  const Vocabulary& vocabulary = model.vocabulary();
  auto next = static_cast<std::int32_t>(model.size());
  for (const JsonPart& part : parts) {
    const AddedToken token = read_token(part, normalizers, classes);
    const auto id = static_cast<std::int32_t>(part.number("id"));
    if (token.content.empty()) continue;
    auto known = vocabulary.find(token.content);
    if (!known && ids_.contains(token.content)) known = ids_.find(token.content)->second;
    const std::int32_t expected = known ? *known : next++;
    if (id != expected) {
      part.fail("id", fmt::format("of {} is {}, but {} is {}", printable(token.content, 40), id,
                                  known ? "the vocabulary's" : "the next free one", expected));
    }
    ids_[token.content] = id;
    tokens_[id] = token;
  }
  for (const auto& [id, token] : tokens_) {
    (token.normalized ? normalized_ : raw_).add(token.searched, id);
  }
}

std::vector<AddedTokens::Found> AddedTokens::find(std::string_view text, bool normalized,
                                                  CodePointClasses& classes) const {
  const ByteTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Found> found;
  std::size_t done = 0;
  for (std::size_t at = 0; !trie.empty() && at < text.size();) {
    if (!trie.begins_some(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    TextRange match{at, at};
    std::int32_t id = -1;
    trie.each_prefix(text.substr(at), [&](std::size_t bytes, std::int32_t number) {
      match.end = at + bytes;
      id = number;
    });
    if (id < 0) {
      ++at;
      continue;
    }
    // Before right_strip: tokens in the white space that it strips are found too.
    at = match.end;
    const AddedToken& token = tokens_.at(id);
    if (token.single_word && !stands_alone(text, match, classes)) continue;
    while (token.left_strip && match.begin > done &&
           is_space(text, code_point_before(text, match.begin), classes)) {
      match.begin = code_point_before(text, match.begin);
    }
    while (token.right_strip && match.end < text.size() && is_space(text, match.end, classes)) {
      match.end += next_code_point(text, match.end).bytes;
    }
    if (done < match.begin) found.push_back({{done, match.begin}, -1});
    found.push_back({match, id});
    done = match.end;
  }
  if (done < text.size()) found.push_back({{done, text.size()}, -1});
  return found;
}

}  // namespace trident
