// A pseudo-random permutation of [0, n) that is computed, not stored: a balanced Feistel network
// over the smallest even number of bits that holds n, its round function Philox4x32-10, walked
// along its cycle until the value falls below n (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). Fewer than four walks on average, O(1) memory, no set-up: nothing has to
// be built, stored or waited for, and any rank can compute any sample of any epoch.
#pragma once

#include <cstdint>

namespace trident {

class Permutation {
 public:
  // Of [0, n), 1 <= n < 2^62. Another key, stream or epoch gives another, unrelated permutation.
  Permutation(std::uint64_t n, std::uint64_t key, std::uint32_t stream, std::uint64_t epoch);

  std::uint64_t operator()(std::uint64_t index) const;  // index < n

 private:
  std::uint64_t n_;
  std::uint64_t key_;
  std::uint32_t stream_;
  std::uint64_t epoch_;
  int half_bits_;
};

}  // namespace trident
