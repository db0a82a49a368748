#include "base/files/content_hash.h"

#define XXH_INLINE_ALL  // header-only use of the library
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "base/files/file.h"

namespace trident {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t content_hash(std::string_view text) {
  return content_hash(std::as_bytes(std::span(text)));
}

std::uint64_t content_hash_of_file(const std::string& path, std::uint64_t whole) {
  const ReadFile file(path);
  const std::uint64_t size = file.size();
  std::uint64_t hash = size;
  std::vector<std::byte> block;
  const auto add = [&](std::uint64_t begin, std::uint64_t count) {
    block.resize(count);
    file.read_at(begin, block);
    hash = content_hash(block, hash);
  };
  if (size <= whole) {
    for (std::uint64_t at = 0; at < size; at += kBlock) add(at, std::min(kBlock, size - at));
    return hash;
  }
  const std::uint64_t blocks = std::max<std::uint64_t>(2, whole / kBlock);
  const std::uint64_t bytes = std::min(kBlock, size);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    add((size - bytes) / (blocks - 1) * i + (size - bytes) % (blocks - 1) * i / (blocks - 1),
        bytes);
  }
  return hash;
}

}  // namespace trident
