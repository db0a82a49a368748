// What lies behind a standard stream: how wide it is, and whether it obeys a terminal's codes.
#pragma once

#include <string>
#include <string_view>

namespace trident {

struct Terminal {
  bool live = false;    // lines can be drawn anew
  bool colour = false;  // the terminal has some, and NO_COLOR (https://no-color.org) isn't set
  int columns = 0;      // 0: no terminal, so lines may have any length
};

// Of a file descriptor, as it is now: windows change.
Terminal terminal_of(int stream);

// Columns that UTF-8 text takes; each code point as one.
int columns_of(std::string_view text);

// Words of each line in lines of at most `columns` (0: any number), those that follow indented by
// so many spaces. Words that are longer stay whole.
std::string wrapped(std::string_view text, int columns, int indent);

}  // namespace trident
