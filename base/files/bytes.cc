#include "base/files/bytes.h"

#include <fmt/format.h>

#include "base/error.h"

namespace trident {

std::span<const std::byte> ByteReader::take(std::uint64_t count, std::string_view what) {
  if (count > remaining()) {
    throw RequestError(
        fmt::format("{}: truncated: {} at offset {} needs {} bytes, the file has {} left", file_,
                    what, base_ + position_, count, remaining()));
  }
  const auto part = bytes_.subspan(position_, static_cast<std::size_t>(count));
  position_ += part.size();
  return part;
}

std::span<std::byte> ByteWriter::claim(std::size_t count) {
  const std::size_t left = bytes_.size() - position_;
  if (count > left) {
    throw Error(fmt::format("{}: writing {} bytes at offset {}, but only {} are left of {}", file_,
                            count, position_, left, bytes_.size()));
  }
  const auto part = bytes_.subspan(position_, count);
  position_ += count;
  return part;
}

}  // namespace trident
