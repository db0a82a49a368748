// A tokenizer.json as llama.cpp has it: lists of tokens, their kinds, merges or scores, and the
// name of a way to cut text. What llama.cpp does in another way is told, not passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/tokenizer/tokenizer.h"
#include "formats/gguf/gguf_file.h"

namespace trident {

// llama.cpp's kinds of tokens; what isn't listed there has no text.
enum class GgufToken : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

struct GgufVocabulary {
  // tokenizer.ggml.model: "gpt2" (BPE over bytes), "llama" (SentencePiece's BPE), "rwkv" (here each
  // byte by itself), "none" (ids alone).
  std::string model = "none";
  std::string pre;  // "gpt2": how text is cut
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  std::optional<std::int32_t> begin, end, unknown;  // of a text
  bool add_begin = false, add_end = false;          // around a prompt
  bool add_space = false;                           // before it
  // Why it is "none", or in what texts' ids may differ; for people.
  std::vector<std::string> notes;

  void write(GgufKeys& keys) const;
};

// Each byte is its own token, of a model of at least 256. `begin` and `ends` as below.
GgufVocabulary gguf_bytes(std::int64_t entries, std::optional<std::int32_t> begin,
                          const std::vector<std::int32_t>& ends);

// Of the tokenizer that is in the tokenizer.json with this text, for a model of so many entries.
// "none", with a note, where llama.cpp has no such tokenizer. RequestError, which begins with
// `name`, where it is larger than the model. `begin` and `ends`: the model's own ids, if it has
// any.
GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, std::string_view text,
                               const std::string& name, std::int64_t entries,
                               std::optional<std::int32_t> begin,
                               const std::vector<std::int32_t>& ends);

}  // namespace trident
