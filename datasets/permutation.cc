#include "datasets/permutation.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"
#include "core/rng.h"

namespace trident {
namespace {

// On large domains, four rounds are proven to be indistinguishable from a random permutation; small
// domains need more.
constexpr std::uint32_t kRounds = 8;

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t key, std::uint32_t stream,
                         std::uint64_t epoch)
    : n_(n), key_(key), stream_(stream), epoch_(epoch) {
  if (n == 0 || n >= std::uint64_t{1} << 62) {
    throw Error(fmt::format("permutation of {} samples: needs 1 to 2^62 - 1", n));
  }
  half_bits_ = (std::bit_width(n - 1) + 1) / 2;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  if (n_ == 1) return 0;
  const std::uint32_t mask = static_cast<std::uint32_t>((std::uint64_t{1} << half_bits_) - 1);
  do {
    auto left = static_cast<std::uint32_t>(index >> half_bits_);
    auto right = static_cast<std::uint32_t>(index) & mask;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      // The epoch's upper half shares a word with the round, which needs three bits.
      const auto words =
          philox({right, round | static_cast<std::uint32_t>(epoch_ >> 32) << 3, stream_,
                  static_cast<std::uint32_t>(epoch_)},
                 {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
      const std::uint32_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    index = std::uint64_t{left} << half_bits_ | right;
  } while (index >= n_);
  return index;
}

}  // namespace trident
