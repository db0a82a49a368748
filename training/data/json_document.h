// The text of a document that is a line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace trident {

// The string under `key` of the object that `line` is. RequestError, without a place, where it is
// none or has no such string. Nothing else of the line is kept.
std::string text_in_json(std::string_view line, std::string_view key);

}  // namespace trident
