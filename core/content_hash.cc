#include "core/content_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/file.h"

namespace trident {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

// The finisher of SplitMix64: every bit of the input changes half of the output's.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

// Four lanes at a time, since a multiplication has to wait for the one before in its lane.
std::uint64_t content_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  constexpr std::uint64_t prime = 0x9e3779b185ebca87ULL;
  std::array<std::uint64_t, 4> lanes{seed + 1, seed + 2, seed + 3, seed + 4};
  const auto add = [&](const std::byte* at) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      std::uint64_t word = 0;
      std::memcpy(&word, at + lane * sizeof word, sizeof word);
      lanes[lane] = std::rotl((lanes[lane] ^ word) * prime, 29);
    }
  };
  constexpr std::size_t step = sizeof lanes;
  std::size_t i = 0;
  for (; i + step <= bytes.size(); i += step) add(bytes.data() + i);
  std::array<std::byte, step> rest{};
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.end(), rest.begin());
  add(rest.data());
  std::uint64_t hash = mixed(bytes.size() + seed);
  for (const std::uint64_t lane : lanes) hash = mixed(hash ^ lane);
  return hash;
}

std::uint64_t content_hash_of_file(const std::string& path, std::uint64_t whole) {
  const ReadFile file(path);
  const std::uint64_t size = file.size();
  std::uint64_t hash = mixed(size);
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
