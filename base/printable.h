// Text from files and command lines, as it may be shown: a terminal obeys control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trident {

// `text` with control characters (C0, DEL, C1), line and paragraph separators, marks that turn the
// direction of writing, and bytes that are no UTF-8 as \n, \t, \xNN or \u{NNNN}; what is longer
// than `max_bytes` ends in "...". For names and values that come from a file.
std::string printable(std::string_view text, std::size_t max_bytes = 200);

// The same for a whole message: its line ends stay, and nothing is cut.
std::string printable_lines(std::string_view message);

}  // namespace trident
