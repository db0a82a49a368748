#include "training/data/text_source.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trident {

TextSource::TextSource(const std::string& path, std::int64_t vocab_size) : file_(path) {
  if (size() == 0) throw RequestError(fmt::format("{}: the file is empty", path));
  if (vocab_size < 256) {
    throw RequestError(
        fmt::format("{}: a text file has 256 token ids, its bytes, but model.vocab_size is {}; "
                    "use 256",
                    path, vocab_size));
  }
}

void TextSource::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > size() - count) {
    throw Error(fmt::format("{}: tokens {} to {} asked for, it has {}", path(), begin,
                            begin + count, size()));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(file_.bytes()[begin + i]);
  }
}

}  // namespace trident
