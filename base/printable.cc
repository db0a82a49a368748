#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "base/utf8.h"

namespace trident {
namespace {

bool harmless(char32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  if (code >= 0x200e && code <= 0x200f) return false;  // direction marks
  if (code >= 0x2028 && code <= 0x202e) return false;  // separators, embeddings, overrides
  return !(code >= 0x2066 && code <= 0x2069) && code != 0xfeff;
}

std::string escaped(const CodePoint& c, char byte) {
  if (c.code == '\n') return "\\n";
  if (c.code == '\t') return "\\t";
  if (c.valid && c.code >= 0x80)
    return fmt::format("\\u{{{:04x}}}", static_cast<std::uint32_t>(c.code));
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
}

std::string shown(std::string_view text, std::size_t max_bytes, bool keep_lines) {
  std::string result;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    const bool as_it_is = c.valid && (harmless(c.code) || (keep_lines && c.code == '\n'));
    const std::string next = as_it_is ? std::string(text.substr(0, c.bytes)) : escaped(c, text[0]);
    if (result.size() + next.size() > max_bytes) return result + "...";
    result += next;
    text.remove_prefix(c.bytes);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  return shown(text, max_bytes, false);
}

std::string printable_lines(std::string_view message) {
  return shown(message, std::numeric_limits<std::size_t>::max(), true);
}

}  // namespace trident
