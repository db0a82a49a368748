#include "datasets/tokenizer/regex.h"

#include <fmt/format.h>
#include <oniguruma.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace trident {
namespace {

// Initialises Oniguruma once per process.
void initialise() {
  static const int done = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (done != ONIG_NORMAL) throw Error(fmt::format("Oniguruma can't be initialised ({})", done));
}

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string reason(int code, OnigErrorInfo* info = nullptr) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info == nullptr ? onig_error_code_to_str(text, code)
                                     : onig_error_code_to_str(text, code, info);
  return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

bool has_property(char32_t code, int property) {
  return ONIGENC_IS_CODE_CTYPE(ONIG_ENCODING_UTF8, static_cast<OnigCodePoint>(code),
                               static_cast<unsigned>(property)) != 0;
}

int property_named(std::string_view name) {
  initialise();
  auto* begin = const_cast<OnigUChar*>(bytes_of(name));
  const int property =
      ONIGENC_PROPERTY_NAME_TO_CTYPE(ONIG_ENCODING_UTF8, begin, begin + name.size());
  if (property < 0) throw Error(fmt::format("Oniguruma knows no property {}", name));
  return property;
}

}  // namespace

Regex::Regex(const std::string& pattern) {
  initialise();
  regex_t* compiled = nullptr;
  OnigErrorInfo info = {};
  const int code = onig_new(&compiled, bytes_of(pattern), bytes_of(pattern) + pattern.size(),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code != ONIG_NORMAL) {
    throw RequestError(fmt::format("{} is no regular expression: {}", printable(pattern, 80),
                                   reason(code, &info)));
  }
  compiled_ = std::shared_ptr<const void>(compiled, [](const void* regex) {
    onig_free(static_cast<regex_t*>(const_cast<void*>(regex)));
  });
}

void Regex::find(std::string_view text, std::vector<TextRange>& matches) const {
  matches.clear();
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
      onig_region_new(), [](OnigRegion* r) { onig_region_free(r, 1); });
  auto* regex = static_cast<regex_t*>(const_cast<void*>(compiled_.get()));
  const OnigUChar* begin = bytes_of(text);
  const OnigUChar* end = begin + text.size();
  for (std::size_t from = 0; from <= text.size();) {
    const int at =
        onig_search(regex, begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE);
    if (at == ONIG_MISMATCH) return;
    if (at < 0) throw Error("a regular expression of the tokenizer failed: " + reason(at));
    const TextRange match{static_cast<std::size_t>(region->beg[0]),
                          static_cast<std::size_t>(region->end[0])};
    if (match.begin == match.end && !matches.empty() && matches.back().end == match.end) {
      from += from < text.size() ? next_code_point(text, from).bytes : 1;
      continue;
    }
    from = match.end;
    matches.push_back(match);
  }
}

std::uint16_t CodePointClasses::classify(char32_t code) {
  struct Property {
    int number;
    std::uint16_t bit;
  };
  static const std::vector<Property> properties = {{property_named("L"), kLetter},
                                                   {property_named("N"), kNumber},
                                                   {property_named("White_Space"), kSpace},
                                                   {property_named("P"), kPunctuation},
                                                   {property_named("Word"), kWord},
                                                   {property_named("Mn"), kNonspacing},
                                                   {property_named("M"), kMark},
                                                   {property_named("Cc"), kOther},
                                                   {property_named("Cf"), kOther},
                                                   {property_named("Co"), kOther}};
  std::uint16_t mask = 0x100;
  for (const Property& property : properties) {
    if (has_property(code, property.number)) mask |= property.bit;
  }
  constexpr std::string_view symbols = "$+<=>^`|~";  // ASCII symbols that aren't in category P
  if (code < 0x80 && symbols.find(static_cast<char>(code)) != std::string_view::npos) {
    mask |= kPunctuation;
  }
  return mask;
}

}  // namespace trident
