// Strict reading of JSON (RFC 8259): a key that occurs twice in an object, nesting deeper than 64,
// anything after the document, NaN, infinities and numbers beyond a double are errors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trident {

inline constexpr std::size_t kMaxJsonDepth = 64;

// // and /* */, as editors know them in "JSON with comments".
enum class JsonComments { refused, allowed };

// Parses `text`. Throws RequestError "NAME:LINE:COLUMN: problem" (both count from 1, columns in
// bytes); a duplicate key is named by its JSON pointer. Never recurses with the document's depth.
nlohmann::json parse_json(std::string_view text, const std::string& name,
                          JsonComments comments = JsonComments::refused);

// The library's own reading of text that we wrote, or that decides nothing: null where it isn't
// JSON.
nlohmann::json json_or_null(std::string_view text);
nlohmann::ordered_json ordered_json_or_null(std::string_view text);

// The text of a value, on one line or indented; what isn't UTF-8 in its strings is U+FFFD. Parsing
// and printing are templates that cost a second in each file that calls them itself.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// What a parse error of the library's says, without its place and number.
std::string json_problem(std::string_view what);

// `pointer` + "/" + `key`, with ~ and / escaped as RFC 6901 says.
std::string json_pointer_append(std::string_view pointer, std::string_view key);

}  // namespace trident
