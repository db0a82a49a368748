// Reads from a tokenizer.json the parts that llama.cpp needs. The file must have been checked
// before (datasets/tokenizer/tokenizer.h). These functions are pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf/gguf_vocabulary.h"

namespace trident {

// Thrown if llama.cpp has no equivalent of a tokenizer; `what` is the reason.
struct NotInLlamaCpp {
  std::string what;
};

// The value of a key that may be missing or null. The second and third return `otherwise` and "" if
// it has another type.
const nlohmann::json& part_at(const nlohmann::json& object, const char* key);
bool flag_at(const nlohmann::json& object, const char* key, bool otherwise);
std::string word_at(const nlohmann::json& object, const char* key);
// The steps of a normalizer, pre-tokenizer or decoder: none, one, or the steps of a Sequence, whose
// key is `list`.
std::vector<nlohmann::json> steps_of(const nlohmann::json& part, const char* list);
// The pairs of a BPE model, in order. Of equal pairs only the last remains, because it is the
// effective one.
using Merges = std::vector<std::pair<std::string, std::string>>;
Merges merges_of(const nlohmann::json& model);

// Complete the vocabulary of a BPE whose tokens and types are listed: set its model, its merges or
// scores, and everything that follows from these. Throw NotInLlamaCpp.
void add_byte_level(const nlohmann::json& document, const Tokenizer&, GgufVocabulary&);
void add_sentence_piece(const nlohmann::json& document, const Tokenizer&, GgufVocabulary&);

}  // namespace trident
