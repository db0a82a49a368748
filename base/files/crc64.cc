#include "base/files/crc64.h"

#include <isa-l/crc64.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

// A polynomial over GF(2) modulo the polynomial of ECMA-182, one bit for each power, the highest
// power in the lowest bit.
constexpr std::uint64_t kPolynomial = 0xC96C5795D7870F42;
constexpr std::uint64_t kOne = std::uint64_t{1} << 63;  // x^0

constexpr std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  for (std::uint64_t power = kOne; power != 0; power >>= 1) {
    if ((a & power) != 0) result ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return result;
}

// x^(8 · 2^k), by k.
constexpr std::array<std::uint64_t, 64> powers() {
  std::array<std::uint64_t, 64> table{};
  table[0] = kOne >> 8;
  for (std::size_t k = 1; k < table.size(); ++k) table[k] = product(table[k - 1], table[k - 1]);
  return table;
}
constexpr std::array<std::uint64_t, 64> kPowers = powers();

// The remainder after `bytes` zero bytes are appended to bytes with the remainder `value`.
std::uint64_t with_zeros(std::uint64_t value, std::uint64_t bytes) {
  for (std::size_t k = 0; bytes != 0; ++k, bytes >>= 1) {
    if ((bytes & 1) != 0) value = product(value, kPowers[k]);
  }
  return value;
}

std::uint64_t crc_from(std::uint64_t before, std::span<const std::byte> bytes) {
  return crc64_ecma_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()),
                         bytes.size());
}

// The remainder of the bytes alone. A CRC starts with ones and is inverted at its end; it is linear
// only without these two steps.
std::uint64_t remainder(std::span<const std::byte> bytes) {
  return ~crc_from(~std::uint64_t{0}, bytes);
}

}  // namespace

std::uint64_t crc64(std::span<const std::byte> bytes, std::uint64_t before) {
  return crc_from(before, bytes);
}

std::uint64_t crc64(std::string_view text) {
  return crc64(as_bytes_of(text));
}

BlockSums::BlockSums(std::uint64_t file_bytes, std::uint64_t block_bytes)
    : file_bytes_(file_bytes),
      block_bytes_(block_bytes),
      parts_((file_bytes + block_bytes - 1) / block_bytes) {}

std::uint64_t BlockSums::size_of_block(std::size_t block) const {
  return std::min(block_bytes_, file_bytes_ - block * block_bytes_);
}

void BlockSums::add(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > file_bytes_ || bytes.size() > file_bytes_ - offset) {
    throw Error("BlockSums: bytes beyond the end of the file");
  }
  while (!bytes.empty()) {
    const std::size_t block = offset / block_bytes_;
    const std::uint64_t at = offset - block * block_bytes_;
    const std::span<const std::byte> here =
        bytes.first(std::min<std::uint64_t>(bytes.size(), block_bytes_ - at));
    parts_[block] ^= with_zeros(remainder(here), size_of_block(block) - at - here.size());
    offset += here.size();
    bytes = bytes.subspan(here.size());
  }
}

void BlockSums::join(std::span<const std::uint64_t> parts) {
  if (parts.size() != parts_.size()) throw Error("BlockSums: got another number of blocks");
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i] ^= parts[i];
}

std::vector<std::uint64_t> BlockSums::sums() const {
  std::vector<std::uint64_t> sums = parts_;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] ^= ~with_zeros(~std::uint64_t{0}, size_of_block(i));
  }
  return sums;
}

}  // namespace trident
