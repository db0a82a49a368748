// Makes text from files and command lines safe to show. A terminal would obey control characters in
// the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trident {

// `text` with unsafe characters escaped as \n, \t, \xNN or \u{NNNN}: control characters (C0, DEL,
// C1), line and paragraph separators, direction marks, and bytes that are not UTF-8. A result
// longer than `max_bytes` is cut and ends in "...". For names and values that come from a file.
std::string printable(std::string_view text, std::size_t max_bytes = 200);

// The same for a whole message: line ends stay, and the message is not cut.
std::string printable_lines(std::string_view message);

}  // namespace trident
