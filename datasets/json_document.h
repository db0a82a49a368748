// Extracts the text of a document from a line of JSON. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "datasets/source_files.h"

namespace trident {

// The remedy that error messages about invalid characters name.
inline constexpr auto kReplaceErrors =
    "errors \"replace\" (data.tokenizer.errors; --errors of trident tokenizer train) puts U+FFFD "
    "in its place";

struct JsonDocumentOptions {
  std::string_view key;  // the key of the text
  // true: an unpaired surrogate (\ud83d alone) in the text becomes U+FFFD; false: it is an error.
  bool replace_surrogates = false;
  const SourceFile& file;  // for the commands that error messages suggest
};

// Returns the string under the key in the JSON object `line`. RequestError, without a place, if the
// line isn't an object (RFC 8259) or has no string under the key. The other members only have to be
// JSON as Python's json writes it: numbers beyond a double, NaN, Infinity and unpaired surrogates
// are allowed there. If the key occurs twice, the last one counts.
std::string text_in_json(std::string_view line, const JsonDocumentOptions&);

}  // namespace trident
