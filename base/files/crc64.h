// CRC-64/XZ (ECMA-182, reflected; what xz files carry), by which a file's blocks prove that they
// are what was written. Sums of parts can be joined, so that several ranks that write parts of one
// block give its sum together, each from its own memory. Not meant against somebody who wants a
// collision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trident {

// `before`: the sum of the bytes that come before these.
std::uint64_t crc64(std::span<const std::byte> bytes, std::uint64_t before = 0);
std::uint64_t crc64(std::string_view text);

// The sums of a file's blocks, from parts that are written in any order and by several ranks.
class BlockSums {
 public:
  BlockSums(std::uint64_t file_bytes, std::uint64_t block_bytes);

  // Bytes that are written at `offset` of the file. Each byte once, over all ranks.
  void add(std::uint64_t offset, std::span<const std::byte> bytes);
  // What other ranks have added. As many blocks.
  void join(std::span<const std::uint64_t> parts);
  // By block, what add() and join() have brought together.
  const std::vector<std::uint64_t>& parts() const { return parts_; }
  // By block, the CRC-64 of its bytes, once all have been added.
  std::vector<std::uint64_t> sums() const;

 private:
  std::uint64_t size_of_block(std::size_t block) const;

  std::uint64_t file_bytes_, block_bytes_;
  std::vector<std::uint64_t> parts_;
};

}  // namespace trident
