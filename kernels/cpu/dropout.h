// Converts the arguments of a dropout site to the form that the inner loops take. Any thread may
// call this.
#pragma once

#include <cmath>

#include "kernels/cpu/simd/table.h"
#include "kernels/dropout.h"

namespace trident::cpu {

inline simd::Dropout dropout_of(const DropoutArgs& args) {
  const double p = args.probability;
  return {args.key, static_cast<std::uint32_t>(std::ceil(p * 0x1p32)),
          static_cast<float>(1 / (1 - p))};
}

}  // namespace trident::cpu
