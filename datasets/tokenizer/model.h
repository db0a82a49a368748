// How a tokenizer turns a piece of text into ids. The kinds of a tokenizer.json's "model".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/json_part.h"
#include "datasets/tokenizer/vocabulary.h"

namespace trident {

// What a model keeps between pieces, one for each thread: memory to work in, and the ids of words
// that it has seen.
class ModelMemory {
 public:
  virtual ~ModelMemory() = default;
};

// What a long piece has needed isn't kept.
template <class T>
void keep_if_small(std::vector<T>& worked_in) {
  if (worked_in.capacity() > std::size_t{1} << 18) worked_in = {};
}

class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  virtual std::unique_ptr<ModelMemory> memory() const = 0;
  // Appends the ids of `piece`, UTF-8 and not empty. Error where a character has no token and the
  // model names none for such. `memory` is one of this model's.
  virtual void encode(std::string_view piece, ModelMemory& memory,
                      std::vector<std::int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual std::size_t size() const { return vocabulary().size(); }  // entries

  // Of a piece with several words: whether it has the ids of its parts if it is cut before
  // SentencePiece's space where that follows another character; or if it is cut after a line end.
  virtual bool parts_at_spaces() const { return false; }
  virtual bool parts_at_line_ends() const { return false; }
};

// RequestErrors for kinds that aren't known and vocabularies that aren't sound. `to_byte_level`
// says that pieces come as bytes, where the vocabulary has them as characters (byte_level.h); a
// model that can't see to that sets it to false.
std::unique_ptr<const TokenizerModel> read_model(const JsonPart& part, bool& to_byte_level);

// The kinds.
std::unique_ptr<const TokenizerModel> read_bpe(const JsonPart& part, bool& to_byte_level);
std::unique_ptr<const TokenizerModel> read_unigram(const JsonPart& part);
std::unique_ptr<const TokenizerModel> read_word_piece(const JsonPart& part);
std::unique_ptr<const TokenizerModel> read_word_level(const JsonPart& part);

// An object of tokens and their ids.
Vocabulary read_vocabulary(const JsonPart& part, std::string_view key);

// Tokens of bytes in SentencePiece's vocabularies: "<0x0A>".
std::string byte_token(unsigned char byte);

}  // namespace trident
