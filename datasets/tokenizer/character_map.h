// SentencePiece's compiled character map (normalizer "Precompiled"): a double-array trie over UTF-8
// keys (Darts-clone) and the texts that replace the keys. Read-only after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

class CharacterMap {
 public:
  // Reads the map from its bytes in base64. RequestError if they aren't a character map.
  explicit CharacterMap(std::string_view base64);

  // Returns the text of the shortest prefix of `part` that is a key; nullopt if no prefix is a key.
  std::optional<std::string_view> find(std::string_view part) const;
  // Returns `text` with replacements. A grapheme cluster below 6 bytes is replaced if the map has
  // it; otherwise each of its characters that the map has (as in `tokenizers`,
  // normalizers/precompiled.rs).
  std::string apply(std::string_view text) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace trident
