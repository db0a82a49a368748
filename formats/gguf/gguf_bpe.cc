#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/utf8.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/gpt_pattern.h"
#include "datasets/tokenizer/model.h"
#include "formats/gguf/tokenizer_json.h"

namespace trident {
namespace {

using nlohmann::json;

constexpr std::string_view kMetaspace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// llama.cpp's name for the pre-tokenizer of GPT-2 or of one of its successors.
std::string pre_of(const std::vector<json>& steps, bool ignore_merges) {
  const auto plain = [](const json& step) {
    return word_at(step, "type") == "ByteLevel" && !flag_at(step, "add_prefix_space", true);
  };
  std::optional<GptPattern> pattern;
  if (steps.size() == 1 && plain(steps[0]) && flag_at(steps[0], "use_regex", true)) {
    pattern = GptPattern{};
  } else if (steps.size() == 2 && word_at(steps[0], "type") == "Split" &&
             word_at(steps[0], "behavior") == "Isolated" && !flag_at(steps[0], "invert", false) &&
             plain(steps[1]) && !flag_at(steps[1], "use_regex", true)) {
    pattern = GptPattern::of(word_at(part_at(steps[0], "pattern"), "Regex"));
  }
  if (steps.size() == 2 && word_at(steps[0], "type") == "Digits" &&
      flag_at(steps[0], "individual_digits", false) && plain(steps[1]) &&
      flag_at(steps[1], "use_regex", true) && !ignore_merges) {
    return "smollm";
  }
  if (pattern && !pattern->later && !ignore_merges) return "gpt-2";
  if (pattern && pattern->later && pattern->digits == 1 && !ignore_merges) return "qwen2";
  if (pattern && pattern->later && pattern->digits == 3) {
    return ignore_merges ? "llama-bpe" : "dbrx";
  }
  throw NotInLlamaCpp{"/pre_tokenizer: llama.cpp has no such pre-tokenizer"};
}

void require_plain_bpe(const json& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!word_at(model, key).empty()) {
      throw NotInLlamaCpp{fmt::format("/model/{}: llama.cpp doesn't support it", key)};
    }
  }
}

// SentencePiece writes spaces as U+2581 and usually puts one before a text. Returns whether it
// does; `cuts`: whether texts are split there.
bool adds_space(const json& document, GgufVocabulary& vocabulary, bool& cuts) {
  bool replaced = false, adds = false;
  for (const json& step : steps_of(part_at(document, "normalizer"), "normalizers")) {
    const std::string type = word_at(step, "type");
    if (type == "Prepend" && word_at(step, "prepend") == kMetaspace) {
      adds = true;
    } else if (type == "Replace" && word_at(part_at(step, "pattern"), "String") == " " &&
               word_at(step, "content") == kMetaspace) {
      replaced = true;
    } else {
      throw NotInLlamaCpp{fmt::format("/normalizer: llama.cpp has no {} here", type)};
    }
  }
  for (const json& step : steps_of(part_at(document, "pre_tokenizer"), "pretokenizers")) {
    const std::string replacement = word_at(step, "replacement");
    if (word_at(step, "type") != "Metaspace" ||
        (!replacement.empty() && replacement != kMetaspace)) {
      throw NotInLlamaCpp{"/pre_tokenizer: llama.cpp has no such pre-tokenizer"};
    }
    const std::string scheme = word_at(step, "prepend_scheme");
    if (scheme.empty() ? flag_at(step, "add_prefix_space", true) : scheme != "never") {
      adds = true;
      vocabulary.notes.push_back(
          std::string("llama.cpp puts a space before each text, also before one that begins with a "
                      "space") +
          (scheme == "first" ? ", and behind added tokens" : "") + ": those get other ids");
    }
    replaced = true;
    cuts = flag_at(step, "split", true);
  }
  if (!replaced)
    throw NotInLlamaCpp{"/pre_tokenizer: it doesn't write spaces as SentencePiece does"};
  return adds;
}

// llama.cpp joins any two neighbours that form a token, those with the best score first. Merges
// have the same effect if every split of a token into two symbols is a merge and the merges of each
// token are consecutive. Returns whether that is so.
bool are_all_merges(const Tokenizer& tokenizer, const Merges& merges,
                    const std::vector<std::string>& tokens) {
  constexpr std::size_t most = 1000;  // bytes of a token, all of whose splits are looked up
  std::unordered_set<std::string> known;
  std::unordered_map<std::string, std::size_t> first;  // the rank of a token's first merge
  std::size_t before = 0, rank = 0;
  for (const auto& [left, right] : merges) {
    known.insert(left + '\0' + right);
    const std::size_t of_token = first.emplace(left + right, rank++).first->second;
    if (of_token < before) return false;
    before = of_token;
  }
  // In llama.cpp a character is a symbol even if it is no token.
  const auto is_symbol = [&](const std::string& text) {
    return next_code_point(text, 0).bytes == text.size() || tokenizer.id_of(text).has_value();
  };
  for (const std::string& token : tokens) {
    if (token.size() > most) return false;
    for (std::size_t cut = token.empty() ? 0 : next_code_point(token, 0).bytes; cut < token.size();
         cut += next_code_point(token, cut).bytes) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if (!known.contains(left + '\0' + right) && is_symbol(left) && is_symbol(right)) return false;
    }
  }
  return true;
}

}  // namespace

void add_byte_level(const json& document, const Tokenizer& tokenizer, GgufVocabulary& vocabulary) {
  const json& model = document["model"];
  require_plain_bpe(model);
  for (int byte = 0; byte < 256; ++byte) {
    if (tokenizer.id_of(to_byte_level(std::string(1, static_cast<char>(byte))))) continue;
    throw NotInLlamaCpp{"/model/vocab: some bytes have no token; llama.cpp would leave them out"};
  }
  for (const json& step : steps_of(part_at(document, "normalizer"), "normalizers")) {
    if (word_at(step, "type") != "NFC") {
      throw NotInLlamaCpp{
          fmt::format("/normalizer: llama.cpp has no {} here", word_at(step, "type"))};
    }
    vocabulary.notes.emplace_back(
        "llama.cpp doesn't normalize texts to the normal form C: texts in other forms get "
        "other ids");
  }
  vocabulary.pre = pre_of(steps_of(part_at(document, "pre_tokenizer"), "pretokenizers"),
                          flag_at(model, "ignore_merges", false));
  vocabulary.model = "gpt2";
  for (const auto& [left, right] : merges_of(model)) {
    vocabulary.merges.push_back(left + " " + right);
  }
}

void add_sentence_piece(const json& document, const Tokenizer& tokenizer,
                        GgufVocabulary& vocabulary) {
  const json& model = document["model"];
  require_plain_bpe(model);
  if (flag_at(model, "ignore_merges", false)) {
    throw NotInLlamaCpp{"/model/ignore_merges: llama.cpp doesn't support it here"};
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = byte_token(static_cast<unsigned char>(byte));
    const auto id = tokenizer.id_of(token);
    if (!flag_at(model, "byte_fallback", false) || !id) {
      throw NotInLlamaCpp{
          "/model: llama.cpp writes characters that have no token as bytes; some bytes have no "
          "token"};
    }
    vocabulary.kinds[static_cast<std::size_t>(*id)] = static_cast<std::int32_t>(GgufToken::byte);
  }
  bool cuts = false;
  vocabulary.add_space = adds_space(document, vocabulary, cuts);
  const auto joins_words = [](const std::string& token) {
    return token.find(kMetaspace, 1) != std::string::npos;
  };
  if (cuts && std::ranges::any_of(vocabulary.tokens, joins_words)) {
    throw NotInLlamaCpp{
        "/pre_tokenizer: llama.cpp doesn't split text here, and a token spans a split"};
  }
  const Merges merges = merges_of(model);
  if (!are_all_merges(tokenizer, merges, vocabulary.tokens)) {
    vocabulary.notes.emplace_back(
        "llama.cpp joins any two tokens that make a third, this tokenizer only those of its "
        "merges: some words get other ids");
  }
  std::unordered_map<std::string, float> scores;
  float score = 0;
  for (const auto& [left, right] : merges) scores.emplace(left + right, score--);
  for (const std::string& token : vocabulary.tokens) {
    const auto found = scores.find(token);
    vocabulary.scores.push_back(found == scores.end() ? score : found->second);
  }
  vocabulary.model = "llama";
}

}  // namespace trident
