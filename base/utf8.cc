#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace trident {
namespace {

// The range of the second byte of a sequence after a lead byte (Unicode 15, table 3-7).
struct SecondByte {
  unsigned char least = 0x80, most = 0xbf;
};

SecondByte second_byte(unsigned char lead) {
  switch (lead) {
    case 0xe0:
      return {0xa0, 0xbf};
    case 0xed:
      return {0x80, 0x9f};
    case 0xf0:
      return {0x90, 0xbf};
    case 0xf4:
      return {0x80, 0x8f};
    default:
      return {};
  }
}

// The first sequence of `text`: the number of its bytes that are valid, and its complete length.
// {1, 0} if the first byte begins no code point.
struct Begun {
  std::size_t bytes, whole;
};

Begun begun(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, 1};
  if (lead < 0xc2 || lead > 0xf4) return {1, 0};
  const std::size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  SecondByte allowed = second_byte(lead);
  std::size_t bytes = 1;
  while (bytes < std::min(whole, text.size()) && byte(bytes) >= allowed.least &&
         byte(bytes) <= allowed.most) {
    ++bytes;
    allowed = {};
  }
  return {bytes, whole};
}

// The position of the first byte from `at` on that isn't ASCII.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const Begun sequence = begun(text);
  if (sequence.bytes != sequence.whole) return {};
  return next_code_point(text, 0);
}

std::size_t invalid_utf8(std::string_view text) {
  for (std::size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const Begun sequence = begun(text.substr(at));
    if (sequence.bytes != sequence.whole) return at;
    at += sequence.bytes;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t ascii = skip_ascii(text, at);
    result.append(text.substr(at, ascii - at));
    at = ascii;
    if (at == text.size()) break;
    const Begun sequence = begun(text.substr(at));
    result.append(sequence.bytes == sequence.whole ? text.substr(at, sequence.bytes)
                                                   : "\xef\xbf\xbd");
    at += sequence.bytes;
  }
  return result;
}

void append_utf8(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

}  // namespace trident
