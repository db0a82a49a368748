#include "datasets/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/character_map.h"
#include "datasets/tokenizer/pattern.h"
#include "datasets/tokenizer/unicode_forms.h"

namespace trident {
namespace {

// Replaces each code point: change(code, result) appends its replacement.
template <class Change>
void change_each(NormalizedText& text, Change change) {
  std::string result;
  result.reserve(text.text.size());
  for (std::size_t at = 0; at < text.text.size();) {
    const CodePoint c = next_code_point(text.text, at);
    change(c.code, result);
    at += c.bytes;
    // The first character was removed, so the text no longer begins at the document's start.
    if (at == c.bytes && result.empty()) text.at_start = false;
  }
  text.text = std::move(result);
}

void remove_nonspacing(NormalizedText& text, CodePointClasses& classes, std::uint16_t mask) {
  change_each(text, [&](char32_t c, std::string& result) {
    if ((classes.of(c) & mask) == 0) append_utf8(result, c);
  });
}

class Form : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(NormalizedText& text, CodePointClasses&) const override {
    text.text = normal_form(text.text, form_);
  }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
  void apply(NormalizedText& text, CodePointClasses&) const override {
    text.text = lower_case(text.text);
  }
};

class StripAccents : public Normalizer {
  void apply(NormalizedText& text, CodePointClasses& classes) const override {
    remove_nonspacing(text, classes, kMark);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text, CodePointClasses& classes) const override {
    const auto is_space = [&](std::size_t at) {
      return (classes.of(next_code_point(text.text, at).code) & kSpace) != 0;
    };
    std::size_t begin = 0, end = text.text.size();
    while (left_ && begin < end && is_space(begin)) {
      begin += next_code_point(text.text, begin).bytes;
    }
    while (right_ && end > begin && is_space(code_point_before(text.text, end))) {
      end = code_point_before(text.text, end);
    }
    if (begin > 0) text.at_start = false;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

// SentencePiece's rules for machine translation (builder.cc, "nmt").
class Nmt : public Normalizer {
  void apply(NormalizedText& text, CodePointClasses&) const override {
    change_each(text, [&](char32_t c, std::string& result) {
      if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
          c == 0x9f) {
        return;
      }
      const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                         (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                         c == 0x2581 || c == 0xfeff || c == 0xfffd;
      append_utf8(result, space ? U' ' : c);
    });
  }
};

bool is_chinese(char32_t c) {
  constexpr char32_t blocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                    {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                    {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  for (const auto& block : blocks) {
    if (c >= block[0] && c <= block[1]) return true;
  }
  return false;
}

// BERT's basic tokenizer (github.com/google-research/bert, tokenization.py).
class Bert : public Normalizer {
 public:
  Bert(bool clean, bool chinese, bool accents, bool lower)
      : clean_(clean), chinese_(chinese), accents_(accents), lower_(lower) {}
  void apply(NormalizedText& text, CodePointClasses& classes) const override {
    if (clean_) {
      change_each(text, [&](char32_t c, std::string& result) {
        const std::uint16_t mask = classes.of(c);
        const bool space = (mask & kSpace) != 0;
        const bool plain_space = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xfffd || ((mask & kOther) != 0 && !plain_space)) return;
        append_utf8(result, space ? U' ' : c);
      });
    }
    if (chinese_) {
      change_each(text, [&](char32_t c, std::string& result) {
        const bool apart = is_chinese(c);
        if (apart) result += ' ';
        append_utf8(result, c);
        if (apart) result += ' ';
      });
    }
    if (accents_) {
      text.text = normal_form(text.text, NormalForm::nfd);
      remove_nonspacing(text, classes, kNonspacing);
    }
    if (lower_) text.text = lower_case(text.text);
  }

 private:
  bool clean_, chinese_, accents_, lower_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(NormalizedText& text, CodePointClasses&) const override {
    if (!text.text.empty() && !text.continued) text.text.insert(0, text_);
  }

 private:
  std::string text_;
};

class ByteLevel : public Normalizer {
  void apply(NormalizedText& text, CodePointClasses&) const override {
    text.text = to_byte_level(text.text);
  }
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(std::string_view base64) : map_(base64) {}
  void apply(NormalizedText& text, CodePointClasses&) const override {
    text.text = map_.apply(text.text);
  }

 private:
  CharacterMap map_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(NormalizedText& text, CodePointClasses&) const override {
    std::vector<TextRange> matches;
    pattern_.find(text.text, matches);
    if (matches.empty()) return;
    std::string result;
    std::size_t done = 0;
    for (const TextRange& match : matches) {
      if (match.begin == 0 && match.end > 0) {
        const bool one = next_code_point(text.text, 0).bytes == match.end;
        if (content_.empty() || !one) text.at_start = false;
      }
      result.append(text.text, done, match.begin - done);
      result += content_;
      done = match.end;
      require_bounded_growth(text.text.size(), result.size());
    }
    result.append(text.text, done);
    text.text = std::move(result);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

std::unique_ptr<const Normalizer> read_bert(const JsonPart& part) {
  part.allow({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lower = part.flag("lowercase");
  return std::make_unique<Bert>(part.flag("clean_text"), part.flag("handle_chinese_chars"),
                                part.flag("strip_accents", lower), lower);
}

std::unique_ptr<const Normalizer> read_precompiled(const JsonPart& part) {
  part.allow({"type", "precompiled_charsmap"});
  try {
    return std::make_unique<Precompiled>(part.string("precompiled_charsmap"));
  } catch (const RequestError& error) {
    part.fail("precompiled_charsmap", error.what());
  }
}

}  // namespace

void require_bounded_growth(std::size_t before, std::size_t bytes) {
  if (bytes <= std::min(64 * before + 4096, std::size_t{1} << 30)) return;
  throw Error(fmt::format("the tokenizer's normalizer makes {} bytes of {}", bytes, before));
}

void read_normalizers(const JsonPart& part, Normalizers& normalizers) {
  using Reader = std::function<std::unique_ptr<const Normalizer>()>;
  const auto form = [&](NormalForm which) -> Reader {
    return [=] { return std::make_unique<Form>(which); };
  };
  const Reader readers[] = {
      nullptr,
      form(NormalForm::nfc),
      form(NormalForm::nfd),
      form(NormalForm::nfkc),
      form(NormalForm::nfkd),
      [] { return std::make_unique<Lowercase>(); },
      [] { return std::make_unique<StripAccents>(); },
      [] { return std::make_unique<Nmt>(); },
      [] { return std::make_unique<ByteLevel>(); },
      [&] {
        part.allow({"type", "strip_left", "strip_right"});
        return std::make_unique<Strip>(part.flag("strip_left"), part.flag("strip_right"));
      },
      [&] { return read_bert(part); },
      [&] { return read_precompiled(part); },
      [&] {
        part.allow({"type", "pattern", "content"});
        return std::make_unique<Replace>(read_pattern(part, "pattern"), part.insertion("content"));
      },
      [&] {
        part.allow({"type", "prepend"});
        return std::make_unique<Prepend>(part.insertion("prepend"));
      }};
  const std::size_t type = part.type_among({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase",
                                            "StripAccents", "Nmt", "ByteLevel", "Strip",
                                            "BertNormalizer", "Precompiled", "Replace", "Prepend"});
  if (type == 0) {
    part.allow({"type", "normalizers"});
    for (const JsonPart& inner : part.parts("normalizers")) read_normalizers(inner, normalizers);
    return;
  }
  if (type <= 8) part.allow({"type"});
  normalizers.push_back(readers[type]());
}

}  // namespace trident
