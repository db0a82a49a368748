#include "datasets/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

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
  std::vector<std::byte> bytes(out.size());
  file_.read_at(static_cast<std::uint64_t>(begin), bytes);
  std::ranges::transform(bytes, out.begin(), [](std::byte b) { return std::to_integer<int>(b); });
}

}  // namespace trident
