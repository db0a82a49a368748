#include "datasets/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace trident {
namespace {

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};  // -1: the character stands for no byte
};

constexpr Tables kTables = [] {
  Tables tables;
  for (auto& byte : tables.byte) byte = -1;
  char32_t other = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    tables.character[byte] = itself ? byte : other++;
    tables.byte[tables.character[byte]] = static_cast<std::int16_t>(byte);
  }
  return tables;
}();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string characters;
  characters.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_utf8(characters, kTables.character[static_cast<unsigned char>(byte)]);
  }
  return characters;
}

std::optional<std::string> from_byte_level(std::string_view characters) {
  std::string bytes;
  for (std::size_t at = 0; at < characters.size();) {
    const CodePoint c = next_code_point(characters, at);
    if (c.code >= kTables.byte.size() || kTables.byte[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kTables.byte[c.code]);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace trident
