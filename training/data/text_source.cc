#include "training/data/text_source.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trident {

TextSource::TextSource(const std::string& path, std::int64_t vocab_size)
    : file_(path), vocab_size_(vocab_size) {
  if (size() == 0) throw RequestError(fmt::format("{}: the file is empty", path));
}

void TextSource::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > size() - count) {
    throw Error(fmt::format("{}: tokens {} to {} asked for, it has {}", path(), begin,
                            begin + count, size()));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto token = static_cast<std::int32_t>(file_.bytes()[begin + i]);
    if (token >= vocab_size_) {
      throw RequestError(fmt::format("{}: byte {} is token {}, beyond vocab_size {}", path(),
                                     begin + static_cast<std::int64_t>(i), token, vocab_size_));
    }
    out[i] = token;
  }
}

}  // namespace trident
