#include "core/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace trident {

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (biased == 0x7ff) {
    ++non_finite_;
    return;
  }
  if (mantissa == 0 && biased == 0) return;
  if (biased != 0) mantissa |= std::uint64_t{1} << 52;
  const int position =
      biased == 0 ? 0 : biased - 1;  // weight of the lowest bit is 2^(position-1074)
  const int limb = position / 32, shift = position % 32;
  const auto wide = static_cast<unsigned __int128>(mantissa) << shift;
  const std::int64_t sign = (bits >> 63) ? -1 : 1;
  for (int i = 0; i < 3; ++i) {
    const auto digit = static_cast<std::int64_t>(static_cast<std::uint32_t>(wide >> (32 * i)));
    if (digit != 0) digits_[static_cast<std::size_t>(limb + i)] += sign * digit;
  }
  if (++pending_ == (1 << 28)) carry();
}

void ExactSum::carry() {
  for (int i = 0; i + 1 < limbs; ++i) {
    auto& digit = digits_[static_cast<std::size_t>(i)];
    const std::int64_t low = digit & 0xffffffff;
    digits_[static_cast<std::size_t>(i) + 1] += (digit - low) / (std::int64_t{1} << 32);
    digit = low;
  }
  pending_ = 0;
}

std::array<std::int64_t, ExactSum::limbs + 1> ExactSum::state() const {
  ExactSum normal = *this;
  normal.carry();
  std::array<std::int64_t, limbs + 1> state{};
  for (std::size_t i = 0; i < limbs; ++i) state[i] = normal.digits_[i];
  state[limbs] = non_finite_;
  return state;
}

ExactSum ExactSum::from_state(std::span<const std::int64_t, limbs + 1> state) {
  ExactSum sum;
  for (std::size_t i = 0; i < limbs; ++i) sum.digits_[i] = state[i];
  sum.non_finite_ = state[limbs];
  sum.carry();
  return sum;
}

double ExactSum::value() const {
  if (non_finite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum normal = *this;
  normal.carry();
  const bool negative = normal.digits_[limbs - 1] < 0;
  if (negative) {
    for (auto& digit : normal.digits_) digit = -digit;
    normal.carry();
  }
  int top = limbs - 1;
  while (top > 0 && normal.digits_[static_cast<std::size_t>(top)] == 0) --top;
  double value = 0;
  // Four digits hold at least 96 significant bits; lowest first, so that roundings stay small.
  for (int i = std::max(0, top - 3); i <= top; ++i) {
    value +=
        std::ldexp(static_cast<double>(normal.digits_[static_cast<std::size_t>(i)]), 32 * i - 1074);
  }
  return negative ? -value : value;
}

}  // namespace trident
