#include "datasets/tokenizer/pattern.h"

#include "base/error.h"

namespace trident {

void Pattern::find(std::string_view in, std::vector<TextRange>& matches) const {
  if (regex) return regex->find(in, matches);
  matches.clear();
  for (std::size_t at = in.find(text); at != std::string_view::npos;
       at = in.find(text, at + text.size())) {
    matches.push_back({at, at + text.size()});
  }
}

Pattern read_pattern(const JsonPart& part, std::string_view key) {
  const JsonPart pattern = part.part(key);
  pattern.allow({"String", "Regex"});
  Pattern result;
  if (!pattern.lacks("String")) {
    result.text = pattern.string("String");
    if (result.text.empty()) pattern.fail("String", "is empty");
    return result;
  }
  try {
    result.regex.emplace(pattern.string("Regex"));
  } catch (const RequestError& error) {
    pattern.fail("Regex", error.what());
  }
  return result;
}

}  // namespace trident
