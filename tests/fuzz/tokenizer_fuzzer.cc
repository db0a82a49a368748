// A tokenizer.json up to the first zero byte, and a text after it. An accepted tokenizer gives
// valid ids, also for a split text, and either a vocabulary for llama.cpp or none.
#include <algorithm>

#include "base/utf8.h"
#include "datasets/tokenizer/tokenizer.h"
#include "formats/gguf/gguf_vocabulary.h"
#include "fuzz/fuzzing.h"

namespace trident::fuzzing {

void fuzz_tokenizer(std::string_view input) {
  const auto end = std::min(input.find('\0'), input.size());
  std::optional<Tokenizer> tokenizer;
  if (!accepted([&] { tokenizer.emplace(input.substr(0, end), "tokenizer.json"); })) return;
  if (const std::int64_t entries = tokenizer->vocab_size() + 1; entries < 1 << 16) {
    const auto there =
        gguf_vocabulary(*tokenizer, input.substr(0, end), "tokenizer.json", entries, {}, {0});
    const auto listed = static_cast<std::size_t>(there.model == "none" ? 0 : entries);
    require(there.tokens.size() == listed && there.kinds.size() == listed, "all ids are listed");
  }
  std::string text =
      replace_invalid_utf8(input.substr(std::min(end + 1, input.size())).substr(0, 500));
  text += " don't  stop\nat é 🙂 12345";
  std::vector<std::int32_t> ids, parts;
  Tokenizer::Memory memory(*tokenizer);
  try {
    tokenizer->encode(text, memory, ids);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t cut =
          std::min(tokenizer->next_split_point(text, at + 1, memory), text.size());
      tokenizer->encode(std::string_view(text).substr(at, cut - at), memory, parts, at > 0);
      at = cut;
    }
  } catch (const Error&) {
    return;  // no token for a character, or too slow an expression
  }
  require(ids == parts, "parts have the ids of the undivided text");
  for (const std::int32_t id : ids) {
    require(id < tokenizer->vocab_size() && tokenizer->token_of(id), "ids are tokens");
  }
  require(invalid_utf8(tokenizer->decode(ids)) == std::string::npos, "decoded text is UTF-8");
}

}  // namespace trident::fuzzing
