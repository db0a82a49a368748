// Converts a tokenizer.json to llama.cpp's form: lists of tokens, their types, merges or scores,
// and the name of a pre-tokenizer. Where llama.cpp differs from the tokenizer, the result has a
// note.
//
// These functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"
#include "formats/gguf/gguf_file.h"

namespace trident {

// llama.cpp's types of tokens. llama.cpp gives no text to tokens of other types.
enum class GgufToken : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

struct GgufVocabulary {
  // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece's BPE), "rwkv" (here one
  // token for each byte), "none" (the file takes ids only).
  std::string model = "none";
  std::string pre;  // "gpt2": the pre-tokenizer
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  std::optional<std::int32_t> begin, end, unknown;  // token ids
  bool add_begin = false, add_end = false;          // around a prompt
  bool add_space = false;                           // before a prompt
  // Why the model is "none", or for which texts llama.cpp's ids may differ; for people.
  std::vector<std::string> notes;

  void write(GgufKeys& keys) const;
};

// The vocabulary of the byte tokenizer, in which each byte is a token. `entries`: the model's
// vocabulary, at least 256. `begin` and `ends` as below.
GgufVocabulary gguf_bytes(std::int64_t entries, std::optional<std::int32_t> begin,
                          const std::vector<std::int32_t>& ends);

// The vocabulary of `tokenizer`, whose tokenizer.json has this text, for a model with a vocabulary
// of `entries`. It is "none", with a note, if llama.cpp has no equivalent. `begin` and `ends` are
// the model's own ids, if it has any. Throws RequestError, which begins with `name`, if the
// tokenizer has more ids than the model.
GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, std::string_view text,
                               const std::string& name, std::int64_t entries,
                               std::optional<std::int32_t> begin,
                               const std::vector<std::int32_t>& ends);

}  // namespace trident
