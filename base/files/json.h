// A strict reader of JSON (RFC 8259). These are errors: a key that occurs twice in an object,
// nesting deeper than 64, text after the document, NaN, infinities and numbers beyond a double.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trident {

inline constexpr std::size_t kMaxJsonDepth = 64;

// Whether // and /* */ comments are accepted, as in editors' "JSON with comments".
enum class JsonComments { refused, allowed };

// Parses `text`. Throws RequestError "NAME:LINE:COLUMN: problem" (both count from 1, columns in
// bytes); a duplicate key is named by its JSON pointer. Never recurses with the document's depth.
nlohmann::json parse_json(std::string_view text, const std::string& name,
                          JsonComments comments = JsonComments::refused);

// Parses with the library's own reader, for text that Trident wrote or that decides nothing.
// Returns null if the text isn't JSON.
nlohmann::json json_or_null(std::string_view text);
nlohmann::ordered_json ordered_json_or_null(std::string_view text);

// The text of a value, on one line or indented. Invalid UTF-8 in its strings becomes U+FFFD. Call
// these functions instead of the library's templates, which cost a second of compile time in each
// file that uses them.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

// The problem that a parse error of the library states, without its place and number.
std::string json_problem(std::string_view what);

// `pointer` + "/" + `key`, with ~ and / escaped as RFC 6901 says.
std::string json_pointer_append(std::string_view pointer, std::string_view key);

}  // namespace trident
