// An exact sum of doubles. The result does not depend on the order or grouping of the additions, so
// each rank may add any part of the values. (A Kulisch accumulator, as in Neal 2015, "Fast exact
// summation using small and large superaccumulators".)
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trident {

class ExactSum {
 public:
  static constexpr int limbs = 68;  // 32-bit digits, fixed-point, least significant first

  void add(double value);
  // The digits and, last, the count of non-finite values. The element-wise sum of the states of all
  // ranks is the state of the sum over ranks (for up to 2^20 ranks).
  std::array<std::int64_t, limbs + 1> state() const;
  static ExactSum from_state(std::span<const std::int64_t, limbs + 1> state);
  // NaN if a value was not finite. Otherwise within an ulp of the exact sum, and equal for equal
  // sums.
  double value() const;

 private:
  void carry();

  std::array<std::int64_t, limbs> digits_{};
  std::int64_t non_finite_ = 0;
  int pending_ = 0;  // additions since the last carry
};

}  // namespace trident
