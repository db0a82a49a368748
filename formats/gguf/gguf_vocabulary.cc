#include "formats/gguf/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/files/json.h"
#include "formats/gguf/tokenizer_json.h"

namespace trident {
namespace {

using nlohmann::json;

// Tokens that llama.cpp recognizes by name in any vocabulary (llama-vocab.cpp, load()). Texts end
// at these, whatever the file says:
constexpr std::string_view kEndsByName[] = {"</s>",
                                            "<EOT>",
                                            "_<EOT>",
                                            "<eos>",
                                            "[EOS]",
                                            "[EOT]",
                                            "[e~[",
                                            "<turn|>",
                                            "<end_of_turn>",
                                            "<end_of_utterance>",
                                            "<|end|>",
                                            "<|endoftext|>",
                                            "<|end_of_text|>",
                                            "<|eot_id|>",
                                            "<|eom_id|>",
                                            "<|im_end|>",
                                            "<|return|>",
                                            "<|call|>",
                                            "<|calls|>",
                                            "<|flush|>",
                                            "<|tool_response>",
                                            "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
                                            "<|fim_pad|>",
                                            "<fim-pad>",
                                            "<fim_pad>",
                                            "<PAD>",
                                            "[PAD]",
                                            "<|fim_repo|>",
                                            "<|repo_name|>",
                                            "<fim-repo>",
                                            "<REPO>",
                                            "<reponame>",
                                            "<|file_sep|>"};
// Texts don't end at these:
constexpr std::string_view kSpecialByName[] = {"<|start|>",
                                               "<|channel|>",
                                               "<|message|>",
                                               "<|constrain|>",
                                               "<|fim_prefix|>",
                                               "<|fim_middle|>",
                                               "<|fim_suffix|>",
                                               "<fim_prefix>",
                                               "<fim_middle>",
                                               "<fim_suffix>",
                                               "<fim-prefix>",
                                               "<fim-middle>",
                                               "<fim-suffix>",
                                               "<PRE>",
                                               "<MID>",
                                               "<SUF>",
                                               "\u2581<PRE>",
                                               "\u2581<MID>",
                                               "\u2581<SUF>",
                                               "<|prefix|>",
                                               "<|middle|>",
                                               "<|suffix|>",
                                               "<|code_prefix|>",
                                               "<|code_middle|>",
                                               "<|code_suffix|>",
                                               "<\uFF5Cfim\u2581begin\uFF5C>",
                                               "<\uFF5Cfim\u2581hole\uFF5C>",
                                               "<\uFF5Cfim\u2581end\uFF5C>"};

template <std::size_t N>
bool among(const std::string_view (&names)[N], const std::string& name) {
  return std::ranges::find(names, name) != std::end(names);
}

// Lists all entries of the model, in order, including those that no text is encoded to.
void list_tokens(const json& document, const Tokenizer& tokenizer, std::int64_t entries,
                 GgufVocabulary& vocabulary) {
  for (std::int32_t id = 0; id < entries; ++id) {
    const auto token = tokenizer.token_of(id);
    vocabulary.tokens.push_back(token ? *token : fmt::format("[PAD{}]", id));
    vocabulary.kinds.push_back(
        static_cast<std::int32_t>(token ? GgufToken::normal : GgufToken::unused));
  }
  const bool normalizes = !part_at(document, "normalizer").is_null();
  bool strips = false, normalized = false;
  for (const json& added : part_at(document, "added_tokens")) {
    const auto id = static_cast<std::size_t>(added["id"].get<std::int64_t>());
    vocabulary.kinds[id] = static_cast<std::int32_t>(
        flag_at(added, "special", false) ? GgufToken::control : GgufToken::user_defined);
    for (const char* key : {"lstrip", "rstrip", "single_word"}) {
      strips = strips || flag_at(added, key, false);
    }
    normalized = normalized || (normalizes && flag_at(added, "normalized", false));
  }
  if (strips) {
    vocabulary.notes.emplace_back(
        "llama.cpp finds added tokens inside words as well, and takes no white space beside them: "
        "text around some of this tokenizer's gets other ids");
  }
  if (normalized) {
    vocabulary.notes.emplace_back(
        "llama.cpp looks for added tokens in the text as it is, this tokenizer for some of them in "
        "the normalized one: texts that have them may get other ids");
  }
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] != static_cast<std::int32_t>(GgufToken::normal)) continue;
    const std::string& name = vocabulary.tokens[i];
    if (!among(kEndsByName, name) && !among(kSpecialByName, name)) continue;
    vocabulary.notes.push_back(
        fmt::format("llama.cpp takes \"{}\" in texts for one token; this tokenizer doesn't", name));
  }
  std::unordered_set<std::string_view> texts(vocabulary.tokens.begin(), vocabulary.tokens.end());
  if (texts.size() < vocabulary.tokens.size()) {
    throw NotInLlamaCpp{"two entries have the same text, which llama.cpp doesn't support"};
  }
}

// Sets `begin` and the first of `ends`, if they are entries of the vocabulary.
void set_ends(GgufVocabulary& vocabulary, std::optional<std::int32_t> begin,
              const std::vector<std::int32_t>& ends) {
  const auto within = [&](std::int32_t id) {
    return id >= 0 && id < std::ssize(vocabulary.tokens);
  };
  if (begin && within(*begin)) vocabulary.begin = begin;
  const auto end = std::ranges::find_if(ends, within);
  if (end != ends.end()) {
    vocabulary.end = *end;
    if (std::any_of(end + 1, ends.end(),
                    [&](std::int32_t id) { return within(id) && id != *end; })) {
      vocabulary.notes.push_back(
          fmt::format("texts end at several tokens; in llama.cpp at \"{}\", and at others only if "
                      "it knows their names",
                      vocabulary.tokens[static_cast<std::size_t>(*end)]));
    }
  }
  std::string more;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& name = vocabulary.tokens[i];
    if (!among(kEndsByName, name) ||
        std::ranges::find(ends, static_cast<std::int32_t>(i)) != ends.end()) {
      continue;
    }
    more += fmt::format("{}\"{}\"", more.empty() ? "" : ", ", name);
  }
  if (!more.empty()) {
    vocabulary.notes.push_back(fmt::format(
        "llama.cpp also ends texts at {}, because of its name; the model's texts don't end there",
        more));
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
    vocabulary.notes.emplace_back(
        "llama.cpp puts only the end of text after a prompt, not another token");
  } else {
    vocabulary.end = after[0];
  }
}

// Without an end token, llama.cpp takes a fixed id as one, and texts end there.
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

GgufVocabulary gguf_bytes(std::int64_t entries, std::optional<std::int32_t> begin,
                          const std::vector<std::int32_t>& ends) {
  // llama.cpp's tokenizer for RWKV takes the longest token that is a prefix of the remaining text.
  // Tokens are written as Python writes bytes.
  GgufVocabulary vocabulary;
  vocabulary.model = "rwkv";
  for (std::int64_t id = 0; id < entries; ++id) {
    // Entries from 256 on must match no text: 0xff occurs in no UTF-8.
    vocabulary.tokens.push_back(id < 256 ? fmt::format("\\x{:02x}", id)
                                         : fmt::format("\\xff\\xff{}", id));
    vocabulary.kinds.push_back(
        static_cast<std::int32_t>(id < 256 ? GgufToken::normal : GgufToken::unused));
  }
  set_ends(vocabulary, begin, ends);
  return vocabulary;
}

GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, std::string_view text,
                               const std::string& name, std::int64_t entries,
                               std::optional<std::int32_t> begin,
                               const std::vector<std::int32_t>& ends) {
  if (tokenizer.vocab_size() > entries) {
    throw RequestError(fmt::format("{}: has ids up to {}, the model has {} entries", name,
                                   tokenizer.vocab_size() - 1, entries));
  }
  const json document = parse_json(text, name);
  GgufVocabulary vocabulary;
  try {
    const json& model = part_at(document, "model");
    if (!model.contains("merges")) {
      throw NotInLlamaCpp{
          fmt::format("/model: {} models can't be exported to GGUF", word_at(model, "type"))};
    }
    list_tokens(document, tokenizer, entries, vocabulary);
    set_ends(vocabulary, begin, ends);
    const std::vector<json> cuts = steps_of(part_at(document, "pre_tokenizer"), "pretokenizers");
    const bool bytes = std::ranges::any_of(
        cuts, [](const json& step) { return word_at(step, "type") == "ByteLevel"; });
    if (bytes) {
      add_byte_level(document, tokenizer, vocabulary);
    } else {
      add_sentence_piece(document, tokenizer, vocabulary);
    }
    if (const std::string unknown = word_at(model, "unk_token"); !unknown.empty()) {
      vocabulary.unknown = tokenizer.id_of(unknown);
      // Only if it isn't an ordinary word, at which llama.cpp would split texts.
      if (vocabulary.unknown && tokenizer.is_special(*vocabulary.unknown)) {
        vocabulary.kinds[static_cast<std::size_t>(*vocabulary.unknown)] =
            static_cast<std::int32_t>(GgufToken::unknown);
      }
    }
    add_surroundings(tokenizer, vocabulary);
    choose_end(vocabulary);
    return vocabulary;
  } catch (const NotInLlamaCpp& problem) {
    vocabulary = {};
    vocabulary.notes.push_back(
        fmt::format("{}: {}; the GGUF file takes ids only", name, problem.what));
    return vocabulary;
  }
}

}  // namespace trident
