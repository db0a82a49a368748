#include "run/evaluation/evaluation_bytes.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "run/generation/text_stream.h"

namespace trident {
namespace {

// The decoded bytes of tokens [begin, end), decoded as a continuation of the token before them.
std::int64_t decoded_bytes(const TokenSource& source, std::int64_t begin, std::int64_t end,
                           const Tokenizer* tokenizer) {
  std::vector<std::int32_t> tokens(std::size_t{1} << 16);
  std::optional<TextStream> stream;
  std::int64_t bytes = 0;
  for (std::int64_t at = std::max<std::int64_t>(0, begin - 1); at < end;) {
    const auto count = std::min<std::int64_t>(std::ssize(tokens), end - at);
    const std::span<std::int32_t> some(tokens.data(), static_cast<std::size_t>(count));
    source.read(at, some);
    for (const std::int32_t token : some) {
      const bool counts = at++ >= begin;
      if (tokenizer == nullptr) {  // ids from 256 on are no bytes
        bytes += counts && token < 256 ? 1 : 0;
        continue;
      }
      if (!stream) {
        const auto prompt = counts ? std::vector<std::int32_t>() : std::vector{token};
        stream.emplace(tokenizer, prompt, std::vector<std::string>{});
      }
      if (counts) bytes += std::ssize(stream->add(token));
    }
  }
  return stream ? bytes + std::ssize(stream->finish()) : bytes;
}

// The bytes of the text before the token at `position`.
std::int64_t bytes_before(const TokenSource& source, std::int64_t position,
                          const Tokenizer* tokenizer) {
  const auto [before, after] = source.text_marks()->around(position);
  if (before.tokens == after.tokens) return before.bytes;
  const auto decoded = [&](std::int64_t end) {
    return static_cast<double>(decoded_bytes(source, before.tokens, end, tokenizer));
  };
  const double whole = decoded(after.tokens);
  // Tokens that decode to nothing get equal shares.
  const double share = whole > 0 ? decoded(position) / whole
                                 : static_cast<double>(position - before.tokens) /
                                       static_cast<double>(after.tokens - before.tokens);
  return before.bytes + std::llround(share * static_cast<double>(after.bytes - before.bytes));
}

}  // namespace

std::int64_t text_bytes_of(const TokenSource& source, std::int64_t begin, std::int64_t end,
                           const Tokenizer* tokenizer) {
  if (source.text_marks() == nullptr) return decoded_bytes(source, begin, end, tokenizer);
  return bytes_before(source, end, tokenizer) - bytes_before(source, begin, tokenizer);
}

}  // namespace trident
