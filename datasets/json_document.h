// The text of a document that is a line of JSON.
#pragma once

#include <string>
#include <string_view>

#include "datasets/source_files.h"

namespace trident {

// What a message about what is no character says of the remedy.
inline constexpr auto kReplaceErrors =
    "errors \"replace\" (data.tokenizer.errors; --errors of trident tokenizer train) takes U+FFFD "
    "for "
    "such";

struct JsonDocumentOptions {
  std::string_view key;  // of the text
  bool replace_surrogates =
      false;               // U+FFFD for half a pair (\ud83d alone) in the text; else an error
  const SourceFile& file;  // for the commands of messages
};

// The string under the key of the object that `line` is. RequestError, without a place, where it is
// none (RFC 8259) or has no such string. What else it holds only has to be JSON as Python's json
// writes it: numbers beyond a double, NaN, Infinity and halves of surrogate pairs stand there in
// other members. Of keys that are there twice the last counts.
std::string text_in_json(std::string_view line, const JsonDocumentOptions&);

}  // namespace trident
