#include "core/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

namespace trident {
namespace {

struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool valid = false;
};

// The first character of `text`, which isn't empty, by RFC 3629.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return {};
  std::uint32_t code = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {bytes, code, true};
}

bool harmless(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  if (code >= 0x200e && code <= 0x200f) return false;  // marks of direction
  if (code >= 0x2028 && code <= 0x202e) return false;  // separators, embeddings, overrides
  return !(code >= 0x2066 && code <= 0x2069) && code != 0xfeff;
}

std::string escaped(const Character& c, char byte) {
  if (c.code == '\n') return "\\n";
  if (c.code == '\t') return "\\t";
  if (c.valid && c.code >= 0x80) return fmt::format("\\u{{{:04x}}}", c.code);
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
}

std::string shown(std::string_view text, std::size_t max_bytes, bool keep_lines) {
  std::string result;
  while (!text.empty()) {
    const Character c = first_of(text);
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
