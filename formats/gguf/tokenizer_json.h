// A tokenizer.json that has been checked (datasets/tokenizer/tokenizer.h), read once more for what
// llama.cpp needs of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf/gguf_vocabulary.h"

namespace trident {

// What keeps a tokenizer from being one of llama.cpp's.
struct NotInLlamaCpp {
  std::string what;
};

// Of a key that may be missing or null.
const nlohmann::json& part_at(const nlohmann::json& object, const char* key);
bool flag_at(const nlohmann::json& object, const char* key, bool otherwise);
std::string word_at(const nlohmann::json& object, const char* key);
// The steps of a normalizer, pre-tokenizer or decoder: none, one, or those of a Sequence, whose key
// is `list`.
std::vector<nlohmann::json> steps_of(const nlohmann::json& part, const char* list);
// The pairs of a BPE model, from the first on; of equal ones the last, which is the one that
// counts.
using Merges = std::vector<std::pair<std::string, std::string>>;
Merges merges_of(const nlohmann::json& model);

// Sets the model, its merges or scores and all else that follows from these of a BPE whose tokens
// and kinds are listed. Throw NotInLlamaCpp.
void add_byte_level(const nlohmann::json& document, const Tokenizer&, GgufVocabulary&);
void add_sentence_piece(const nlohmann::json& document, const Tokenizer&, GgufVocabulary&);

}  // namespace trident
