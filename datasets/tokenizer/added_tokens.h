// Tokens that a text is searched for before it is cut: special ones and those added to a
// vocabulary. A tokenizer.json's "added_tokens".
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
  bool normalized = false;  // searched for in the normalized text, by its normalized content
  bool special = false;
  std::string searched;  // content, or that normalized
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // A token that the model has keeps its id there; others get ids after its number of entries, in
  // order. RequestError where the file says another id.
  AddedTokens(const std::vector<JsonPart>& parts, const TokenizerModel& model,
              const Normalizers& normalizers, CodePointClasses& classes);

  struct Found {
    TextRange range;
    std::int32_t id;  // -1: text between tokens
  };
  // The parts of `text`, in order: of tokens in raw text, or of those in normalized text; at each
  // place the longest.
  std::vector<Found> find(std::string_view text, bool normalized, CodePointClasses& classes) const;

  const std::unordered_map<std::int32_t, AddedToken>& tokens() const { return tokens_; }
  const StringMap<std::int32_t>& ids() const { return ids_; }

 private:
  std::unordered_map<std::int32_t, AddedToken> tokens_;
  StringMap<std::int32_t> ids_;
  ByteTrie raw_, normalized_;
};

}  // namespace trident
