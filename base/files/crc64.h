// CRC-64/XZ (ECMA-182, reflected; the checksum of xz files), which verifies that a file's blocks
// are the bytes that were written. Checksums of parts can be combined: several ranks that write
// parts of one block compute its checksum together, each from its own memory. It does not protect
// against a deliberate collision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trident {

// `before`: the checksum of the preceding bytes.
std::uint64_t crc64(std::span<const std::byte> bytes, std::uint64_t before = 0);
std::uint64_t crc64(std::string_view text);

// The checksums of a file's blocks, from parts that several ranks write in any order.
class BlockSums {
 public:
  BlockSums(std::uint64_t file_bytes, std::uint64_t block_bytes);

  // Adds the bytes that are written at `offset` of the file. Over all ranks, each byte must be
  // added exactly once. Throws Error for bytes beyond the end of the file.
  void add(std::uint64_t offset, std::span<const std::byte> bytes);
  // Adds the parts() of another rank. Throws Error for another number of blocks.
  void join(std::span<const std::uint64_t> parts);
  // By block, the combined result of add() and join() so far.
  const std::vector<std::uint64_t>& parts() const { return parts_; }
  // By block, the CRC-64 of its bytes. Valid once all bytes have been added.
  std::vector<std::uint64_t> sums() const;

 private:
  std::uint64_t size_of_block(std::size_t block) const;

  std::uint64_t file_bytes_, block_bytes_;
  std::vector<std::uint64_t> parts_;
};

}  // namespace trident
