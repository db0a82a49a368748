// The terminal behind a standard stream: its width, and whether it obeys control codes.
#pragma once

#include <string>
#include <string_view>

namespace trident {

struct Terminal {
  bool live = false;    // lines can be redrawn
  bool colour = false;  // the terminal has colours, and NO_COLOR (https://no-color.org) isn't set
  int columns = 0;      // 0: no terminal, so lines may have any length
};

// The current state of the terminal at a file descriptor. Windows can be resized.
Terminal terminal_of(int stream);

// The number of columns of UTF-8 text; each code point counts as one column.
int columns_of(std::string_view text);

// `text` with each line wrapped at `columns` (0: no limit). Continuation lines are indented by
// `indent` spaces. A longer word is not split.
std::string wrapped(std::string_view text, int columns, int indent);

}  // namespace trident
