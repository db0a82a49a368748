#include "datasets/tokenizer/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace trident {

bool Vocabulary::add(const std::string& token, std::int32_t id) {
  const auto [place, added] = tokens_.emplace(id, token);
  if (!added && place->second != token) return false;
  ids_[token] = id;
  largest_ = std::max(largest_, id);
  return true;
}

Vocabulary read_vocabulary(const JsonPart& part, std::string_view key) {
  const JsonPart list = part.part(key);
  Vocabulary vocabulary;
  for (const auto& [token, id] : part[key].items()) {
    if (!vocabulary.add(token, static_cast<std::int32_t>(list.number(token)))) {
      list.fail(printable(token, 60),
                fmt::format("has id {}, as another token", id.get<std::int64_t>()));
    }
  }
  if (vocabulary.size() == 0) part.fail(key, "is empty");
  return vocabulary;
}

std::string byte_token(unsigned char byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::unique_ptr<const TokenizerModel> read_model(const JsonPart& part, bool& to_byte_level) {
  // Older files have no "type".
  const std::size_t type = part.lacks("type") && !part.lacks("merges")
                               ? 0
                               : part.type_among({"BPE", "Unigram", "WordPiece", "WordLevel"});
  if (type == 0) return read_bpe(part, to_byte_level);
  to_byte_level = false;
  if (type == 1) return read_unigram(part);
  return type == 2 ? read_word_piece(part) : read_word_level(part);
}

}  // namespace trident
