#include "base/process/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace trident {
namespace {

constexpr int kLeastColumns = 30;

}  // namespace

Terminal terminal_of(int stream) {
  if (::isatty(stream) == 0) return {};
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string_view(kind) == "dumb";
  const char* const no_colour = std::getenv("NO_COLOR");
  winsize window{};
  const bool known = ::ioctl(stream, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  // A line that wraps can't be redrawn.
  const bool narrow = known && window.ws_col < kLeastColumns;
  return {.live = !dumb && !narrow,
          .colour = !dumb && (no_colour == nullptr || *no_colour == '\0'),
          .columns = known ? std::max<int>(window.ws_col, kLeastColumns) : 80};
}

int columns_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, int columns, int indent) {
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    int used = 0;
    for (std::size_t at = 0; at < line.size();) {
      // Takes a word with the spaces before it, so that columns stay aligned in a line that fits.
      const std::size_t word = std::min(line.find_first_not_of(' ', at), line.size());
      const std::size_t stop = std::min(line.find(' ', word), line.size());
      const int wide = columns_of(line.substr(at, stop - at));
      if (columns > 0 && at > 0 && used + wide > columns && word < line.size()) {
        result += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
        used = indent + columns_of(line.substr(word, stop - word));
        result += line.substr(word, stop - word);
      } else {
        used += wide;
        result += line.substr(at, stop - at);
      }
      at = stop;
    }
    if (end < text.size()) result += '\n';
    begin = end + 1;
  }
  return result;
}

}  // namespace trident
