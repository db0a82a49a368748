// SentencePiece's unigram model (Kudo 2018, arXiv 1804.10959). Of all segmentations of a piece into
// tokens it takes the one with the largest sum of log probabilities (Viterbi).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "datasets/tokenizer/byte_trie.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/regex.h"
#include "datasets/tokenizer/word_cache.h"

namespace trident {
namespace {

// The best segmentation up to a place in the piece: its score and its last token.
struct LatticeStep {
  double score = 0;
  std::int64_t begin = -1;  // where the last token begins; -1: no segmentation yet
  std::int32_t id = 0;
};

struct UnigramMemory : ModelMemory {
  WordCache cache;
  std::vector<LatticeStep> steps;
  std::vector<TextRange> tokens;
};

// Returns `score` as serde_json, and so `tokenizers`, reads it: it reads all digits as an integer,
// and divides or multiplies it by a power of ten. The result can be off by a unit in the last
// place. This decides between segmentations that are otherwise equally good.
double as_serde_reads(double score) {
  const std::string text =
      fmt::format("{}", std::abs(score));  // the shortest that reads back as `score`
  std::uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false;
  for (const char c : text.substr(0, text.find('e'))) {
    if (c == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<std::uint64_t>(c - '0');
    exponent -= fraction ? 1 : 0;
  }
  const auto e = text.find('e');
  if (e != std::string::npos) exponent += std::stoi(text.substr(e + 1));
  const double power = std::pow(10.0, std::abs(exponent));
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, score);
}

class Unigram : public TokenizerModel {
 public:
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::int32_t unknown,
          bool byte_fallback)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        unknown_(unknown),
        byte_fallback_(byte_fallback) {
    for (const auto& [token, id] : vocabulary_.ids()) trie_.add(token, id);
    unknown_score_ = *std::ranges::min_element(scores_) - 10;  // SentencePiece's penalty
    for (int byte = 0; byte < 256; ++byte) {
      byte_tokens_.push_back(
          vocabulary_.find(byte_token(static_cast<unsigned char>(byte))).value_or(-1));
    }
  }

  std::unique_ptr<ModelMemory> memory() const override { return std::make_unique<UnigramMemory>(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::size_t size() const override { return scores_.size(); }  // includes duplicate tokens

  void encode(std::string_view piece, ModelMemory& base,
              std::vector<std::int32_t>& ids) const override {
    auto& memory = static_cast<UnigramMemory&>(base);
    memory.cache.append(piece, ids, [&](std::string_view word, std::vector<std::int32_t>& out) {
      search(word, memory.steps);
      cut(memory.steps, memory.tokens);
      for (const TextRange& token : memory.tokens) {
        append(word.substr(token.begin, token.end - token.begin), out);
      }
      keep_if_small(memory.steps);
      keep_if_small(memory.tokens);
    });
  }

 private:
  void search(std::string_view word, std::vector<LatticeStep>& steps) const {
    steps.assign(word.size() + 1, LatticeStep{});
    for (std::size_t begin = 0; begin < word.size();) {
      const double so_far = steps[begin].score;
      const std::size_t character = next_code_point(word, begin).bytes;
      const auto reach = [&](std::size_t bytes, double score, std::int32_t id) {
        LatticeStep& step = steps[begin + bytes];
        if (step.begin >= 0 && so_far + score <= step.score) return;
        step = {so_far + score, static_cast<std::int64_t>(begin), id};
      };
      bool single = false;
      trie_.each_prefix(word.substr(begin), [&](std::size_t bytes, std::int32_t id) {
        reach(bytes, scores_[static_cast<std::size_t>(id)], id);
        single = single || bytes == character;
      });
      if (!single) {
        if (unknown_ < 0) {
          throw Error("the tokenizer has no token for a character, and no unk_id");
        }
        reach(character, unknown_score_, unknown_);
      }
      begin += character;
    }
  }

  // The tokens of the best segmentation. Neighbouring unknown tokens become one.
  void cut(const std::vector<LatticeStep>& steps, std::vector<TextRange>& tokens) const {
    tokens.clear();
    bool last_unknown = false;
    for (std::size_t end = steps.size() - 1; end > 0;) {
      const auto begin = static_cast<std::size_t>(steps[end].begin);
      const bool unknown = steps[end].id == unknown_;
      if (unknown && last_unknown) {
        tokens.back().begin = begin;
      } else {
        tokens.push_back({begin, end});
      }
      last_unknown = unknown;
      end = begin;
    }
    std::ranges::reverse(tokens);
  }

  void append(std::string_view token, std::vector<std::int32_t>& ids) const {
    if (const auto id = vocabulary_.find(token)) return ids.push_back(*id);
    const auto of_byte = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ && std::ranges::all_of(token, [&](char c) { return of_byte(c) >= 0; })) {
      for (const char c : token) ids.push_back(of_byte(c));
      return;
    }
    ids.push_back(unknown_);
  }

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // by id
  std::int32_t unknown_;        // -1: none
  bool byte_fallback_;
  double unknown_score_ = 0;
  ByteTrie trie_;
  std::vector<std::int32_t> byte_tokens_;
};

}  // namespace

std::unique_ptr<const TokenizerModel> read_unigram(const JsonPart& part) {
  part.allow({"type", "unk_id", "vocab", "byte_fallback"});
  const nlohmann::json& list = part["vocab"];
  if (!list.is_array() || list.empty()) part.fail("vocab", "needs a list of [token, score]");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const auto& entry : list) {
    const auto id = static_cast<std::int32_t>(scores.size());
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>())) {
      part.fail("vocab", fmt::format("number {} isn't [token, score]", id + 1));
    }
    vocabulary.add(entry[0].get<std::string>(), id);
    scores.push_back(as_serde_reads(entry[1].get<double>()));
  }
  std::int32_t unknown = -1;
  if (!part.lacks("unk_id")) unknown = static_cast<std::int32_t>(part.number("unk_id"));
  if (unknown >= static_cast<std::int32_t>(scores.size())) {
    part.fail("unk_id", fmt::format("is {}, the vocabulary has {} tokens", unknown, scores.size()));
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unknown,
                                   part.flag("byte_fallback", false));
}

}  // namespace trident
