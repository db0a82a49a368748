// SentencePiece's compiled map of characters (normalizer "Precompiled"): a double-array trie over
// UTF-8 (Darts-clone) and the texts that stand for its keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

class CharacterMap {
 public:
  // From its bytes in base64. RequestError where they aren't one.
  explicit CharacterMap(std::string_view base64);

  // What replaces `part`: the text of its shortest prefix that is a key; nullopt where none is.
  std::optional<std::string_view> find(std::string_view part) const;
  // `text` with each grapheme cluster below 6 bytes replaced if the map has it, else each of its
  // characters (as `tokenizers` does it, normalizers/precompiled.rs).
  std::string apply(std::string_view text) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace trident
