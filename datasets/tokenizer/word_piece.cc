// WordPiece (BERT) takes the longest token at the beginning of a word, then the longest token at
// the beginning of the rest, and so on. WordLevel: a word is one token, or unknown.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/word_cache.h"

namespace trident {
namespace {

struct WordMemory : ModelMemory {
  WordCache cache;
};

class WordModel : public TokenizerModel {
 public:
  WordModel(Vocabulary vocabulary, std::string unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(std::move(unknown)) {}

  std::unique_ptr<ModelMemory> memory() const override { return std::make_unique<WordMemory>(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, ModelMemory& base,
              std::vector<std::int32_t>& ids) const override {
    static_cast<WordMemory&>(base).cache.append(
        piece, ids, [&](std::string_view word, std::vector<std::int32_t>& out) {
          const std::size_t before = out.size();
          if (encode_word(word, out)) return;
          out.resize(before);
          const auto id = vocabulary_.find(unknown_);
          if (!id) {
            throw Error(fmt::format("the tokenizer has no token for {}, nor its unknown token {}",
                                    printable(word, 40), printable(unknown_, 40)));
          }
          out.push_back(*id);
        });
  }

 protected:
  // Returns false if the vocabulary can't express the word.
  virtual bool encode_word(std::string_view word, std::vector<std::int32_t>& ids) const = 0;

  Vocabulary vocabulary_;

 private:
  std::string unknown_;
};

class WordLevel : public WordModel {
  using WordModel::WordModel;
  bool encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const auto id = vocabulary_.find(word);
    if (id) ids.push_back(*id);
    return id.has_value();
  }
};

class WordPiece : public WordModel {
 public:
  WordPiece(Vocabulary vocabulary, std::string unknown, std::string prefix, std::int64_t longest)
      : WordModel(std::move(vocabulary), std::move(unknown)),
        prefix_(std::move(prefix)),
        longest_(longest) {}

 private:
  bool encode_word(std::string_view word, std::vector<std::int32_t>& ids) const override {
    const auto characters = std::ranges::count_if(
        word, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    if (characters > longest_) return false;
    std::string token;
    for (std::size_t begin = 0; begin < word.size();) {
      token = begin > 0 ? prefix_ : "";
      const std::size_t before = token.size();
      token += word.substr(begin);
      std::optional<std::int32_t> id;
      while (token.size() > before && !(id = vocabulary_.find(token))) {
        token.resize(code_point_before(token, token.size()));
      }
      if (!id) return false;
      ids.push_back(*id);
      begin += token.size() - before;
    }
    return true;
  }

  std::string prefix_;
  std::int64_t longest_;  // the most characters of a word; a longer word is unknown
};

}  // namespace

std::unique_ptr<const TokenizerModel> read_word_piece(const JsonPart& part) {
  part.allow(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  return std::make_unique<WordPiece>(read_vocabulary(part, "vocab"), part.string("unk_token"),
                                     part.string("continuing_subword_prefix"),
                                     part.number("max_input_chars_per_word"));
}

std::unique_ptr<const TokenizerModel> read_word_level(const JsonPart& part) {
  part.allow({"type", "unk_token", "vocab"});
  return std::make_unique<WordLevel>(read_vocabulary(part, "vocab"), part.string("unk_token"));
}

}  // namespace trident
