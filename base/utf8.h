// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, no code point beyond U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trident {

struct CodePoint {
  std::size_t bytes = 1;  // 1 if it isn't valid
  char32_t code = 0;
  bool valid = false;
};

// The first code point of `text`, which must not be empty.
CodePoint first_code_point(std::string_view text);

// The code point at byte `at` of text that is known to be UTF-8.
inline CodePoint next_code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> char32_t {
    return static_cast<unsigned char>(text[at + i]);
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {1, lead, true};
  if (lead < 0xe0) return {2, (lead & 0x1f) << 6 | (byte(1) & 0x3f), true};
  if (lead < 0xf0) {
    return {3, (lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), true};
  }
  return {4,
          (lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          true};
}

// The position of the code point that ends before byte `at` (> 0), in text that is known to be
// UTF-8.
inline std::size_t code_point_before(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

// The position of the first byte that belongs to no valid code point; npos if all of `text` is
// UTF-8.
std::size_t invalid_utf8(std::string_view text);

// `text` with U+FFFD for each maximal part that begins a code point but doesn't complete it, and
// for each other byte that isn't UTF-8 (Unicode 15, chapter 3.9, like Python's errors="replace").
std::string replace_invalid_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t code);

}  // namespace trident
