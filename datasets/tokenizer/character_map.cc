#include "datasets/tokenizer/character_map.h"

#include <array>

#include "base/error.h"
#include "base/files/bytes.h"
#include "base/utf8.h"
#include "datasets/tokenizer/unicode_forms.h"

namespace trident {
namespace {

std::string from_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) throw RequestError("isn't base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> held & 0xff);
    }
  }
  return bytes;
}

// A unit of Darts-clone (github.com/s-yata/darts-clone, include/darts.h).
struct Unit {
  std::uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7fffffff; }
  std::uint32_t label() const { return bits & 0x800000ff; }
  std::uint32_t offset() const { return bits >> 10 << ((bits & 0x200) >> 6); }
};

}  // namespace

CharacterMap::CharacterMap(std::string_view base64) {
  const std::string bytes = from_base64(base64);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  const std::uint32_t size = bytes.size() < 4 ? 0 : load_little_endian<std::uint32_t>(data);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) {
    throw RequestError("is no map of SentencePiece's: the size of its trie is wrong");
  }
  for (std::uint32_t at = 4; at < 4 + size; at += 4) {
    units_.push_back(load_little_endian<std::uint32_t>(data + at));
  }
  texts_ = bytes.substr(4 + size);
  if (!texts_.ends_with('\0') || invalid_utf8(texts_) != std::string::npos) {
    throw RequestError("is no map of SentencePiece's: its texts are truncated or aren't UTF-8");
  }
  for (std::size_t at = 0; at < texts_.size();) {
    const std::size_t end = texts_.find('\0', at);
    if (end - at > 256) throw RequestError("has a text of more than 256 bytes");
    at = end + 1;
  }
}

std::optional<std::string_view> CharacterMap::find(std::string_view part) const {
  std::uint32_t at = Unit{units_[0]}.offset();
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    at ^= byte;
    if (at >= units_.size()) return std::nullopt;  // a damaged map
    const Unit unit{units_[at]};
    if (unit.label() != byte) return std::nullopt;
    at ^= unit.offset();
    if (at >= units_.size()) return std::nullopt;
    if (unit.has_leaf()) {
      const std::size_t begin = Unit{units_[at]}.value();
      if (begin >= texts_.size() || (begin > 0 && texts_[begin - 1] != '\0')) return std::nullopt;
      return std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
    }
  }
  return std::nullopt;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  const auto add = [&](std::string_view part) {
    const auto found = find(part);
    if (found) result += *found;
    return found.has_value();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = first_grapheme(text.substr(at));
    const std::string_view grapheme = text.substr(at, bytes);
    at += bytes;
    if (bytes < 6 && add(grapheme)) continue;
    for (std::size_t c = 0; c < bytes;) {
      const std::string_view character = grapheme.substr(c, next_code_point(grapheme, c).bytes);
      if (!add(character)) result += character;
      c += character.size();
    }
  }
  return result;
}

}  // namespace trident
