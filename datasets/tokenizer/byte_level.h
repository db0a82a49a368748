// GPT-2's way of writing any bytes as printable characters (github.com/openai/gpt-2, encoder.py):
// printable ASCII and most of Latin-1 stand for themselves, the other bytes for U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trident {

// Each byte as its character.
std::string to_byte_level(std::string_view bytes);
// The bytes that such characters stand for; nullopt where another character is among them.
std::optional<std::string> from_byte_level(std::string_view characters);

}  // namespace trident
