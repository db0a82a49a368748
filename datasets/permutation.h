// A pseudo-random permutation of [0, n) that is computed, not stored. It is a balanced Feistel
// network over the smallest even number of bits that holds n, with the round function
// Philox4x32-10. The network is applied again until the value falls below n (cycle walking: Black
// and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), fewer than four times on
// average. It takes O(1) memory and no set-up, so any rank can compute any sample of any epoch.
// Thread-safe.
#pragma once

#include <cstdint>

namespace trident {

class Permutation {
 public:
  // A permutation of [0, n), 1 <= n < 2^62, else Error. Another key, stream or epoch gives an
  // unrelated permutation.
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
