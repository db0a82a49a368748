// The "model" of a tokenizer.json, for each of its types: turns a piece of text (a pre-token) into
// ids. A model is read-only; each thread has its own ModelMemory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/vocabulary.h"

namespace trident {

// The state that a model keeps between pieces, one object for each thread: working memory, and a
// cache of the ids of words.
class ModelMemory {
 public:
  virtual ~ModelMemory() = default;
};

// Frees the working memory that a long piece has needed.
template <class T>
void keep_if_small(std::vector<T>& worked_in) {
  if (worked_in.capacity() > std::size_t{1} << 18) worked_in = {};
}

class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  virtual std::unique_ptr<ModelMemory> memory() const = 0;
  // Appends the ids of `piece`, which must be UTF-8 and not empty. `memory` must come from this
  // model's memory(). Error if a character has no token and the model has no unknown token.
  virtual void encode(std::string_view piece, ModelMemory& memory,
                      std::vector<std::int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual std::size_t size() const { return vocabulary().size(); }  // number of entries

  // Whether a piece with several words keeps its ids if it is split: before a SentencePiece space
  // that follows another character (parts_at_spaces), or after a line end (parts_at_line_ends).
  virtual bool parts_at_spaces() const { return false; }
  virtual bool parts_at_line_ends() const { return false; }
};

// Reads a model of any type. RequestError for unknown types and invalid vocabularies. If
// `to_byte_level` is true, the pieces are raw bytes, and the vocabulary has them as characters
// (byte_level.h). A model that can't convert them itself sets it to false; the caller must then
// convert the pieces (byte_level_step()).
std::unique_ptr<const TokenizerModel> read_model(const JsonPart& part, bool& to_byte_level);

// The readers of each type.
std::unique_ptr<const TokenizerModel> read_bpe(const JsonPart& part, bool& to_byte_level);
std::unique_ptr<const TokenizerModel> read_unigram(const JsonPart& part);
std::unique_ptr<const TokenizerModel> read_word_piece(const JsonPart& part);
std::unique_ptr<const TokenizerModel> read_word_level(const JsonPart& part);

// Reads an object of tokens and their ids. RequestError if it is empty or two tokens share an id.
Vocabulary read_vocabulary(const JsonPart& part, std::string_view key);

// The token of a byte in SentencePiece's vocabularies: "<0x0A>".
std::string byte_token(unsigned char byte);

}  // namespace trident
