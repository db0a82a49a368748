#include "training/gguf/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"
#include "training/tokenizer/gpt_pattern.h"
#include "training/tokenizer/model.h"

namespace trident {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's

// Of a key that may be missing or null.
const json& at(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool flag(const json& object, const char* key, bool otherwise) {
  const json& value = at(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string word(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

// The steps of a normalizer, pre-tokenizer or decoder: none, one, or those of a Sequence.
std::vector<json> steps_of(const json& part, const char* list) {
  if (part.is_null()) return {};
  if (word(part, "type") != "Sequence") return {part};
  std::vector<json> steps;
  for (const json& step : at(part, list)) {
    for (json& inner : steps_of(step, list)) steps.push_back(std::move(inner));
  }
  return steps;
}

bool is_text_pattern(const json& step, std::string_view text) {
  return word(at(step, "pattern"), "String") == text;
}

// A merge is "a b" or ["a", "b"].
std::pair<std::string, std::string> pair_of(const json& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto both = merge.get<std::string>();
  const std::size_t space = both.find(' ');
  return {both.substr(0, space), both.substr(space + 1)};
}

// What keeps a tokenizer from being one of llama.cpp's.
struct NotKnownThere {
  std::string what;
};

// llama.cpp's name for GPT-2's way to cut text, or one of its successors'.
std::string pre_of(const std::vector<json>& steps, bool ignore_merges) {
  const auto plain = [](const json& step) {
    return word(step, "type") == "ByteLevel" && !flag(step, "add_prefix_space", true);
  };
  std::optional<GptPattern> pattern;
  if (steps.size() == 1 && plain(steps[0]) && flag(steps[0], "use_regex", true)) {
    pattern = GptPattern{};
  } else if (steps.size() == 2 && word(steps[0], "type") == "Split" &&
             word(steps[0], "behavior") == "Isolated" && !flag(steps[0], "invert", false) &&
             plain(steps[1]) && !flag(steps[1], "use_regex", true)) {
    pattern = GptPattern::of(word(at(steps[0], "pattern"), "Regex"));
  }
  if (steps.size() == 2 && word(steps[0], "type") == "Digits" &&
      flag(steps[0], "individual_digits", false) && plain(steps[1]) &&
      flag(steps[1], "use_regex", true) && !ignore_merges) {
    return "smollm";
  }
  if (pattern && !pattern->later && !ignore_merges) return "gpt-2";
  if (pattern && pattern->later && pattern->digits == 1 && !ignore_merges) return "qwen2";
  if (pattern && pattern->later && pattern->digits == 3) {
    return ignore_merges ? "llama-bpe" : "dbrx";
  }
  throw NotKnownThere{"/pre_tokenizer: llama.cpp has no such way to cut text"};
}

void require_plain_bpe(const json& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!word(model, key).empty()) {
      throw NotKnownThere{fmt::format("/model/{}: llama.cpp has none", key)};
    }
  }
}

void add_byte_level(const json& document, GgufVocabulary& vocabulary) {
  const json& model = document["model"];
  require_plain_bpe(model);
  for (const json& step : steps_of(at(document, "normalizer"), "normalizers")) {
    if (word(step, "type") != "NFC") {
      throw NotKnownThere{fmt::format("/normalizer: llama.cpp has no {} here", word(step, "type"))};
    }
    vocabulary.notes.emplace_back(
        "llama.cpp doesn't bring texts into the normal form C: those that aren't get other ids");
  }
  vocabulary.pre = pre_of(steps_of(at(document, "pre_tokenizer"), "pretokenizers"),
                          flag(model, "ignore_merges", false));
  vocabulary.model = "gpt2";
  for (const json& merge : at(model, "merges")) {
    const auto [left, right] = pair_of(merge);
    vocabulary.merges.push_back(left + " " + right);
  }
}

// SentencePiece writes spaces as U+2581 and, mostly, puts one before a text.
bool adds_space(const json& document, bool& cuts) {
  bool replaced = false, adds = false;
  for (const json& step : steps_of(at(document, "normalizer"), "normalizers")) {
    const std::string type = word(step, "type");
    if (type == "Prepend" && word(step, "prepend") == kSpace) {
      adds = true;
    } else if (type == "Replace" && is_text_pattern(step, " ") && word(step, "content") == kSpace) {
      replaced = true;
    } else {
      throw NotKnownThere{fmt::format("/normalizer: llama.cpp has no {} here", type)};
    }
  }
  for (const json& step : steps_of(at(document, "pre_tokenizer"), "pretokenizers")) {
    const std::string replacement = word(step, "replacement");
    if (word(step, "type") != "Metaspace" || (!replacement.empty() && replacement != kSpace)) {
      throw NotKnownThere{"/pre_tokenizer: llama.cpp has no such way to cut text"};
    }
    const std::string scheme = word(step, "prepend_scheme");
    adds = adds || (scheme.empty() ? flag(step, "add_prefix_space", true) : scheme != "never");
    replaced = true;
    cuts = flag(step, "split", true);
  }
  if (!replaced) throw NotKnownThere{"/pre_tokenizer: spaces aren't SentencePiece's"};
  return adds;
}

// llama.cpp joins any two neighbours that make a token, the best score first. That is what merges
// say where each token's are all there are, and one after the other. Gives whether it is so.
bool are_all_merges(const Tokenizer& tokenizer, const json& merges,
                    const std::vector<std::string>& tokens) {
  std::unordered_set<std::string> known;
  std::unordered_map<std::string, std::size_t> first;  // the rank of a token's first merge
  std::size_t before = 0, rank = 0;
  for (const json& merge : merges) {
    const auto [left, right] = pair_of(merge);
    known.insert(left + '\0' + right);
    const std::size_t of_token = first.emplace(left + right, rank++).first->second;
    if (of_token < before) return false;
    before = of_token;
  }
  for (const std::string& token : tokens) {
    for (std::size_t cut = token.empty() ? 0 : next_code_point(token, 0).bytes; cut < token.size();
         cut += next_code_point(token, cut).bytes) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if (known.contains(left + '\0' + right)) continue;
      if (tokenizer.id_of(left) && tokenizer.id_of(right)) return false;
    }
  }
  return true;
}

void add_sentence_piece(const json& document, const Tokenizer& tokenizer,
                        GgufVocabulary& vocabulary) {
  const json& model = document["model"];
  require_plain_bpe(model);
  if (flag(model, "ignore_merges", false)) {
    throw NotKnownThere{"/model/ignore_merges: llama.cpp hasn't it here"};
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = byte_token(static_cast<unsigned char>(byte));
    const auto id = tokenizer.id_of(token);
    if (!flag(model, "byte_fallback", false) || !id) {
      throw NotKnownThere{
          "/model: llama.cpp writes characters that have no token as bytes, for which this has "
          "none"};
    }
    vocabulary.kinds[static_cast<std::size_t>(*id)] = static_cast<std::int32_t>(GgufToken::byte);
  }
  bool cuts = false;
  vocabulary.add_space = adds_space(document, cuts);
  const auto joins_words = [](const std::string& token) {
    return token.find(kSpace, 1) != std::string::npos;
  };
  if (cuts && std::ranges::any_of(vocabulary.tokens, joins_words)) {
    throw NotKnownThere{"/pre_tokenizer: llama.cpp doesn't cut text here, and a token goes across"};
  }
  const json& merges = at(model, "merges");
  if (!are_all_merges(tokenizer, merges, vocabulary.tokens)) {
    vocabulary.notes.emplace_back(
        "llama.cpp joins any two tokens that make a third, this tokenizer only those of its "
        "merges: some words get other ids");
  }
  std::unordered_map<std::string, float> scores;
  float score = 0;
  for (const json& merge : merges) {
    const auto [left, right] = pair_of(merge);
    scores.emplace(left + right, score--);
  }
  for (const std::string& token : vocabulary.tokens) {
    const auto found = scores.find(token);
    vocabulary.scores.push_back(found == scores.end() ? score : found->second);
  }
  vocabulary.model = "llama";
}

// All entries of the model, in order, with those that no text becomes.
void list_tokens(const json& document, const Tokenizer& tokenizer, std::int64_t entries,
                 GgufVocabulary& vocabulary) {
  for (std::int32_t id = 0; id < entries; ++id) {
    const auto token = tokenizer.token_of(id);
    vocabulary.tokens.push_back(token ? *token : fmt::format("[PAD{}]", id));
    vocabulary.kinds.push_back(
        static_cast<std::int32_t>(token ? GgufToken::normal : GgufToken::unused));
  }
  bool strips = false;
  for (const json& added : at(document, "added_tokens")) {
    const auto id = static_cast<std::size_t>(added["id"].get<std::int64_t>());
    vocabulary.kinds[id] = static_cast<std::int32_t>(
        flag(added, "special", false) ? GgufToken::control : GgufToken::user_defined);
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
      strips = strips || flag(added, key, false);
    }
  }
  if (strips) {
    vocabulary.notes.emplace_back(
        "llama.cpp takes no white space beside added tokens: it gets ids of its own");
  }
  std::unordered_set<std::string_view> texts(vocabulary.tokens.begin(), vocabulary.tokens.end());
  if (texts.size() < vocabulary.tokens.size()) {
    throw NotKnownThere{"two entries have one text, which llama.cpp has no room for"};
  }
}

void add_surroundings(const Tokenizer& tokenizer, GgufVocabulary& vocabulary) {
  const auto before = tokenizer.before_prompt(), after = tokenizer.after_prompt();
  if (before.size() > 1 || after.size() > 1) {
    vocabulary.notes.emplace_back("llama.cpp puts at most one token before and one after a prompt");
  }
  vocabulary.add_begin = !before.empty();
  vocabulary.add_end = !after.empty();
  if (!before.empty()) vocabulary.begin = before[0];
  if (after.empty()) return;
  if (vocabulary.end && vocabulary.end != after[0]) {
    vocabulary.notes.emplace_back("llama.cpp puts the end of text after a prompt, no other token");
  } else {
    vocabulary.end = after[0];
  }
}

// Without one llama.cpp takes a token that is anything, and texts end there.
void choose_end(GgufVocabulary& vocabulary) {
  if (vocabulary.end) return;
  const auto unused =
      std::ranges::find(vocabulary.kinds, static_cast<std::int32_t>(GgufToken::unused));
  if (unused != vocabulary.kinds.end()) {
    vocabulary.end = static_cast<std::int32_t>(unused - vocabulary.kinds.begin());
    return;
  }
  const std::size_t usual = vocabulary.model == "llama" ? 2 : 11;  // llama-vocab.cpp, load()
  if (usual >= vocabulary.tokens.size()) return;
  vocabulary.notes.push_back(
      fmt::format("no token is known to end a text; llama.cpp then takes token {}, \"{}\"", usual,
                  vocabulary.tokens[usual]));
}

}  // namespace

void GgufVocabulary::write(GgufKeys& keys) const {
  keys.set("tokenizer.ggml.model", model);
  if (model == "none") return;
  if (!pre.empty()) keys.set("tokenizer.ggml.pre", pre);
  keys.set("tokenizer.ggml.tokens", tokens);
  if (!scores.empty()) keys.set("tokenizer.ggml.scores", scores);
  keys.set("tokenizer.ggml.token_type", kinds);
  if (model == "gpt2") keys.set("tokenizer.ggml.merges", merges);
  const auto id = [&](const char* key, std::optional<std::int32_t> value) {
    if (value) keys.set(key, static_cast<std::uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", begin);
  id("tokenizer.ggml.eos_token_id", end);
  id("tokenizer.ggml.unknown_token_id", unknown);
  if (model == "rwkv") return;
  keys.set("tokenizer.ggml.add_bos_token", add_begin);
  keys.set("tokenizer.ggml.add_eos_token", add_end);
  if (model == "llama") keys.set("tokenizer.ggml.add_space_prefix", add_space);
}

GgufVocabulary gguf_bytes(std::int64_t entries) {
  // llama.cpp's tokenizer for RWKV takes the longest token that a text goes on with; its tokens are
  // written as Python writes bytes.
  GgufVocabulary vocabulary;
  vocabulary.model = "rwkv";
  for (std::int64_t id = 0; id < entries; ++id) {
    // What no text goes on with: 0xff is in no UTF-8.
    vocabulary.tokens.push_back(id < 256 ? fmt::format("\\x{:02x}", id)
                                         : fmt::format("\\xff\\xff{}", id));
    vocabulary.kinds.push_back(
        static_cast<std::int32_t>(id < 256 ? GgufToken::normal : GgufToken::unused));
  }
  return vocabulary;
}

GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, std::string_view text,
                               const std::string& name, std::int64_t entries,
                               std::optional<std::int32_t> begin, std::optional<std::int32_t> end) {
  if (tokenizer.vocab_size() > entries) {
    throw RequestError(fmt::format("{}: has ids up to {}, the model {} entries", name,
                                   tokenizer.vocab_size() - 1, entries));
  }
  const json document = parse_json(text, name);
  GgufVocabulary vocabulary;
  const auto within = [&](std::optional<std::int32_t> id) {
    return id && *id >= 0 && *id < entries ? id : std::nullopt;
  };
  vocabulary.begin = within(begin);
  vocabulary.end = within(end);
  try {
    const json& model = at(document, "model");
    if (!model.contains("merges")) {
      throw NotKnownThere{fmt::format("/model: {} is not among llama.cpp's that are written here",
                                      word(model, "type"))};
    }
    list_tokens(document, tokenizer, entries, vocabulary);
    const std::vector<json> cuts = steps_of(at(document, "pre_tokenizer"), "pretokenizers");
    const bool bytes = std::ranges::any_of(
        cuts, [](const json& step) { return word(step, "type") == "ByteLevel"; });
    if (bytes) {
      add_byte_level(document, vocabulary);
    } else {
      add_sentence_piece(document, tokenizer, vocabulary);
    }
    if (const std::string unknown = word(model, "unk_token"); !unknown.empty()) {
      vocabulary.unknown = tokenizer.id_of(unknown);
      if (vocabulary.unknown) {
        vocabulary.kinds[static_cast<std::size_t>(*vocabulary.unknown)] =
            static_cast<std::int32_t>(GgufToken::unknown);
      }
    }
    add_surroundings(tokenizer, vocabulary);
    choose_end(vocabulary);
    return vocabulary;
  } catch (const NotKnownThere& problem) {
    vocabulary = {};
    vocabulary.notes.push_back(fmt::format("{}: {}; the file takes ids alone", name, problem.what));
    return vocabulary;
  }
}

}  // namespace trident
