#include "datasets/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json.h"
#include "datasets/tokenizer/added_tokens.h"
#include "datasets/tokenizer/cut_rule.h"
#include "datasets/tokenizer/decoder.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/normalizer.h"
#include "datasets/tokenizer/post_processor.h"
#include "datasets/tokenizer/pre_tokenizer.h"

namespace trident {

struct Tokenizer::Parts {
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<const TokenizerModel> model;
  AddedTokens added;
  SplitPoints cuts;
  Surroundings surroundings;
  std::vector<Decoder> decoders;

  const std::string* token(std::int32_t id) const {
    const auto found = added.tokens().find(id);
    return found == added.tokens().end() ? model->vocabulary().token(id) : &found->second.searched;
  }
};

struct Tokenizer::Memory::Parts {
  CodePointClasses classes;
  Pieces pieces;
  std::unique_ptr<ModelMemory> model;
};

Tokenizer::Tokenizer(std::string_view text, const std::string& name)
    : parts_(std::make_unique<Parts>()) {
  const nlohmann::json document = parse_json(text, name);
  const JsonPart root(document, name + ": ");
  root.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"});
  if (root.string("version", "1.0") != "1.0") root.fail("version", "needs \"1.0\"");
  Parts& parts = *parts_;
  if (!root.lacks("normalizer")) read_normalizers(root.part("normalizer"), parts.normalizers);
  if (!root.lacks("pre_tokenizer")) {
    read_pre_tokenizers(root.part("pre_tokenizer"), parts.pre_tokenizers);
  }
  bool to_byte_level = parts.pre_tokenizers.to_byte_level;
  parts.model = read_model(root.part("model"), to_byte_level);
  if (parts.pre_tokenizers.to_byte_level && !to_byte_level) {
    parts.pre_tokenizers.steps.push_back(byte_level_step());
  }
  CodePointClasses classes;
  if (!root.lacks("added_tokens")) {
    parts.added = AddedTokens(root.parts("added_tokens"), *parts.model, parts.normalizers, classes);
  }
  parts.cuts = SplitPoints(root, parts.normalizers, *parts.model, parts.added, classes);
  if (!root.lacks("post_processor")) {
    read_post_processor(root.part("post_processor"), parts.surroundings);
  }
  if (!root.lacks("decoder")) read_decoders(root.part("decoder"), parts.decoders);
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Memory::Memory(const Tokenizer& tokenizer) : parts_(std::make_unique<Parts>()) {
  parts_->model = tokenizer.parts_->model->memory();
  parts_->pieces.classes = &parts_->classes;
}
Tokenizer::Memory::Memory(Memory&&) noexcept = default;
Tokenizer::Memory::~Memory() = default;

namespace {

// Splits normalized text and calls visit() for each piece.
template <class Visit>
void each_piece(const PreTokenizers& pre_tokenizers, Pieces& pieces, std::string_view text,
                bool at_start, bool continued, const Visit& visit) {
  pieces.text = text;
  pieces.continued = continued;
  pieces.list = {{{0, text.size()}, at_start}};
  for (const auto& step : pre_tokenizers.steps) step->split(pieces);
  for (const Piece& piece : pieces.list) {
    visit(std::string_view(pieces.text)
              .substr(piece.range.begin, piece.range.end - piece.range.begin));
  }
}

}  // namespace

void Tokenizer::split(std::string_view text, Memory& memory,
                      const std::function<void(std::string_view piece)>& visit,
                      bool continued) const {
  if (text.empty()) return;
  Pieces& pieces = memory.parts_->pieces;
  each_piece(parts_->pre_tokenizers, pieces, text, !continued, continued, visit);
  keep_if_small(pieces.list);
}

void Tokenizer::encode(std::string_view text, Memory& memory, std::vector<std::int32_t>& ids,
                       bool continued) const {
  const Parts& parts = *parts_;
  auto& [classes, pieces, model_memory] = *memory.parts_;
  const auto encode_normalized = [&](std::string_view part, bool at_start, bool continues) {
    each_piece(parts.pre_tokenizers, pieces, part, at_start, continues,
               [&](std::string_view piece) { parts.model->encode(piece, *model_memory, ids); });
  };
  for (const auto& [raw, id] : parts.added.find(text, false, classes)) {
    if (id >= 0) {
      ids.push_back(id);
      continue;
    }
    const bool first = raw.begin == 0;
    NormalizedText normalized{.text = std::string(text.substr(raw.begin, raw.end - raw.begin)),
                              .at_start = first && !continued,
                              .continued = first && continued};
    for (const auto& step : parts.normalizers) {
      step->apply(normalized, classes);
      require_bounded_growth(text.size(), normalized.text.size());
    }
    for (const auto& [range, inner] : parts.added.find(normalized.text, true, classes)) {
      if (inner >= 0) {
        ids.push_back(inner);
        continue;
      }
      const bool begins = range.begin == 0;
      encode_normalized(
          std::string_view(normalized.text).substr(range.begin, range.end - range.begin),
          begins && normalized.at_start, begins && normalized.continued);
    }
  }
  keep_if_small(pieces.list);
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  Memory memory(*this);
  std::vector<std::int32_t> ids = parts_->surroundings.before;
  encode(text, memory, ids);
  ids.insert(ids.end(), parts_->surroundings.after.begin(), parts_->surroundings.after.end());
  return ids;
}

std::span<const std::int32_t> Tokenizer::before_prompt() const {
  return parts_->surroundings.before;
}

std::span<const std::int32_t> Tokenizer::after_prompt() const {
  return parts_->surroundings.after;
}

std::size_t Tokenizer::next_split_point(std::string_view text, std::size_t from,
                                        Memory& memory) const {
  return parts_->cuts.next(text, from, parts_->normalizers, memory.parts_->classes);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    const std::string* token = parts_->token(id);
    if (token != nullptr && !(skip_special && is_special(id))) tokens.push_back(*token);
  }
  std::string text;
  if (parts_->decoders.empty()) {
    for (const std::string& token : tokens) text += (text.empty() ? "" : " ") + token;
    return text;
  }
  for (const Decoder& decoder : parts_->decoders) {
    if (!tokens.empty()) decoder(tokens);
  }
  for (const std::string& token : tokens) text += token;
  return text;
}

std::int64_t Tokenizer::vocab_size() const {
  std::int32_t largest = parts_->model->vocabulary().largest_id();
  for (const auto& [id, token] : parts_->added.tokens()) largest = std::max(largest, id);
  return std::int64_t{largest} + 1;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = parts_->added.ids().find(token);
  if (found != parts_->added.ids().end()) return found->second;
  return parts_->model->vocabulary().find(token);
}

std::optional<std::string> Tokenizer::token_of(std::int32_t id) const {
  const auto added = parts_->added.tokens().find(id);
  if (added != parts_->added.tokens().end()) return added->second.content;
  const std::string* token = parts_->model->vocabulary().token(id);
  if (token == nullptr) return std::nullopt;
  return *token;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto found = parts_->added.tokens().find(id);
  return found != parts_->added.tokens().end() && found->second.special;
}

}  // namespace trident
