// The "added_tokens" of a tokenizer.json: special tokens and tokens added to a vocabulary. The
// tokenizer searches a text for them before it splits the text. Read-only after construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "datasets/tokenizer/byte_trie.h"
#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/normalizer.h"
#include "datasets/tokenizer/vocabulary.h"

namespace trident {

struct AddedToken {
  std::string content;
  bool single_word = false, left_strip = false, right_strip = false;
  bool normalized = false;  // the normalized text is searched for the normalized content
  bool special = false;
  std::string searched;  // the content, normalized if `normalized`
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // A token of the model's vocabulary keeps its id. The other tokens get consecutive ids, beginning
  // with the model's number of entries. RequestError if the file gives another id.
  AddedTokens(const std::vector<JsonPart>& parts, const TokenizerModel& model,
              const Normalizers& normalizers, CodePointClasses& classes);

  struct Found {
    TextRange range;
    std::int32_t id;  // -1: text between tokens
  };
  // Splits `text` into added tokens and the text between them, in order. `normalized` selects the
  // tokens that are searched for in normalized text, else in raw text. The longest token wins.
  std::vector<Found> find(std::string_view text, bool normalized, CodePointClasses& classes) const;

  const std::unordered_map<std::int32_t, AddedToken>& tokens() const { return tokens_; }
  const StringMap<std::int32_t>& ids() const { return ids_; }

 private:
  std::unordered_map<std::int32_t, AddedToken> tokens_;
  StringMap<std::int32_t> ids_;
  ByteTrie raw_, normalized_;
};

}  // namespace trident
