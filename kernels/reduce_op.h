// The operations of a reduction over ranks.
#pragma once

#include <cstdint>
#include <string_view>

namespace trident {

// bit_and, bit_or and bit_xor are for integers only. average divides the sum by the group's size
// (integers round towards zero). Integers wrap around. A NaN wins minimum and maximum. 16-bit
// floats accumulate in fp32 and are rounded once; the ring and tree algorithms round at every step.
enum class ReduceOp : std::uint8_t {
  sum,
  product,
  minimum,
  maximum,
  average,
  bit_and,
  bit_or,
  bit_xor
};
std::string_view name_of(ReduceOp op);

}  // namespace trident
