// GPT-2's encoding of arbitrary bytes as printable characters (github.com/openai/gpt-2,
// encoder.py). Bytes of printable ASCII and most of Latin-1 stand for themselves; the other bytes
// become U+0100 and the characters after it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trident {

// Returns the character of each byte, as UTF-8.
std::string to_byte_level(std::string_view bytes);
// Returns the bytes that the characters stand for; nullopt if a character stands for no byte.
std::optional<std::string> from_byte_level(std::string_view characters);

}  // namespace trident
